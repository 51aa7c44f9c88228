"""The application of the RSGI cases: each path is a case of its own."""

import asyncio
import json

NOTES: list = []


class App:
    """Has the methods that granian calls."""

    def __rsgi_init__(self, loop):
        loop.run_until_complete(asyncio.sleep(0))
        print("the start", flush=True)

    def __rsgi_del__(self, loop):
        print("the end", flush=True)

    async def __rsgi__(self, scope, protocol):
        await (websocket if scope.proto == "ws" else HTTP[scope.path.strip("/").split("/")[0]])(scope, protocol)


async def hello(scope, protocol):
    protocol.response_str(200, [("content-type", "text/plain"), ("x-own", "caf\xe9")], "hello")


async def scope_(scope, protocol):
    names = ("proto", "http_version", "rsgi_version", "server", "client", "scheme", "method", "path", "query_string", "authority")
    headers = scope.headers
    seen = {name: getattr(scope, name) for name in names}
    seen["headers"] = headers.items()
    seen["mapping"] = ["x-test" in headers, headers.get("X-Test"), headers.get("none", 1), headers["x-test"], headers.get_all("x-test"),
                       len(headers) == len(list(headers)) == len(headers.keys()) == len(headers.values())]  # fmt: skip
    protocol.response_bytes(200, [], json.dumps(seen).encode())


async def empty(scope, protocol):
    protocol.response_empty(204, [])


async def echo(scope, protocol):
    protocol.response_bytes(200, [], await protocol())


async def parts(scope, protocol):
    sizes = []
    async for part in protocol:
        sizes.append(len(part))
    protocol.response_str(200, [], str(sum(sizes)))


async def file(scope, protocol):
    protocol.response_file(200, [], __file__)


async def file_range(scope, protocol):
    protocol.response_file_range(206, [], __file__, 3, 6)


async def stream(scope, protocol):
    transport = protocol.response_stream(200, [("content-type", "text/plain")])
    for number in range(100):
        await transport.send_bytes(b"x" * 1000)
        await transport.send_str(f"{number},")


async def until_gone(scope, protocol):
    transport = protocol.response_stream(200, [])
    watcher = asyncio.ensure_future(protocol.client_disconnect())
    try:
        while True:
            await transport.send_bytes(b"tick")
            await asyncio.sleep(0.01)
    except RuntimeError as error:
        await asyncio.wait_for(watcher, 5)
        NOTES.append(type(error).__name__)


async def missing_file(scope, protocol):
    try:
        protocol.response_file(200, [], "/no/such/file")
    except FileNotFoundError:
        protocol.response_empty(404, [])


async def stream_in_a_task(scope, protocol):
    transport = protocol.response_stream(200, [])

    async def later():
        await asyncio.sleep(0.05)
        await transport.send_str("later")

    app.task = asyncio.create_task(later())


async def disconnect(scope, protocol):
    await protocol.client_disconnect()
    NOTES.append("left")


async def twice(scope, protocol):
    protocol.response_str(200, [], "once")
    try:
        protocol.response_str(200, [], "twice")
    except RuntimeError as error:
        NOTES.append(type(error).__name__)


async def raises(scope, protocol):
    raise ValueError("on purpose")


async def raises_in_stream(scope, protocol):
    transport = protocol.response_stream(200, [])
    await transport.send_str("part")
    raise ValueError("on purpose")


async def returns(scope, protocol):
    return


async def wrong(scope, protocol):
    errors = []
    for call in (
        lambda: protocol.response_str(100, [], ""),
        lambda: protocol.response_str(200, [("a b", "c")], ""),
        lambda: protocol.response_str(200, [("a", "b\r\nc: d")], ""),
        lambda: protocol.response_str(200, [("a", 1)], ""),
        lambda: protocol.response_bytes(200, [], "text"),
    ):
        try:
            call()
        except Exception as error:
            errors.append(type(error).__name__)
    protocol.response_str(200, [], " ".join(errors))


async def notes(scope, protocol):
    protocol.response_str(200, [], json.dumps(NOTES))
    NOTES.clear()


async def websocket(scope, protocol):
    if scope.path == "/deny":
        return protocol.close(403)
    transport = await protocol.accept()
    if scope.path == "/closes":
        return protocol.close(4000)
    if scope.path == "/raises":
        raise ValueError("on purpose")
    while True:
        message = await transport.receive()
        if message.kind == 0:
            NOTES.append([message.kind, message.data])
            return None
        if message.kind == 1:
            await transport.send_bytes(message.data)
        else:
            await transport.send_str(message.data)


HTTP = {
    name.rstrip("_").replace("_", "-"): value
    for name, value in list(globals().items())
    if asyncio.iscoroutinefunction(value) and name != "websocket"
}
app = App()


async def function(scope, protocol):
    """An application that is a function."""
    await app.__rsgi__(scope, protocol)
