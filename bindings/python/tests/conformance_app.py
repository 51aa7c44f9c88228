"""The application of the conformance cases: each path is a case of its own."""

import asyncio
import contextvars
import json

STARTED = {}
VARIABLE = contextvars.ContextVar("variable", default="unset")
#: What handlers have seen that could not be told in their response.
NOTES: list = []


async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        await lifespan(scope, receive, send)
    elif scope["type"] == "websocket":
        await websocket(scope, receive, send)
    else:
        name = scope["path"].strip("/").replace("-", "_").split("/")[0]
        await HTTP[name](scope, receive, send)


async def lifespan(scope, receive, send):
    assert await receive() == {"type": "lifespan.startup"}
    scope["state"]["from_lifespan"] = ["shared"]
    await send({"type": "lifespan.startup.complete"})
    assert await receive() == {"type": "lifespan.shutdown"}
    await send({"type": "lifespan.shutdown.complete"})


async def respond(send, body=b"", status=200, headers=()):
    await send({"type": "http.response.start", "status": status, "headers": list(headers)})
    await send({"type": "http.response.body", "body": body})


async def tell(send, value):
    await respond(send, json.dumps(value, default=lambda b: b.decode("latin-1")).encode())


async def read(receive):
    body, events = b"", 0
    while True:
        event = await receive()
        events += 1
        if event["type"] == "http.disconnect":
            return None, events
        body += event["body"]
        if not event["more_body"]:
            return body, events


async def scope_(scope, receive, send):
    state = scope["state"]
    seen = {**scope, "state": dict(state)}
    state["own"] = True
    await tell(send, seen)


async def echo(scope, receive, send):
    body, _ = await read(receive)
    await respond(send, body)


async def count(scope, receive, send):
    body, events = await read(receive)
    await tell(send, {"bytes": len(body), "events": events})


async def first_event(scope, receive, send):
    await tell(send, await receive())


async def status(scope, receive, send):
    await respond(send, b"", int(scope["path"].rsplit("/", 1)[1]))


async def headers(scope, receive, send):
    fields = [(b"x-one", b"1"), (b"X-Two", b"caf\xe9"), (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
    await respond(send, b"x", headers=fields)


async def header_tuple(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": (("x-a".encode(), b"1"),)})
    await send({"type": "http.response.body", "body": b""})


async def no_headers(scope, receive, send):
    await send({"type": "http.response.start", "status": 204})
    await send({"type": "http.response.body"})


async def parts(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    for number in range(5):
        await send({"type": "http.response.body", "body": b"%d," % number, "more_body": True})
        await asyncio.sleep(0)
    await send({"type": "http.response.body", "body": b"end", "more_body": False})


async def parts_of_length(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"6")]})
    await send({"type": "http.response.body", "body": b"abc", "more_body": True})
    await asyncio.sleep(0.01)
    await send({"type": "http.response.body", "body": b"def"})


async def empty_parts(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(3):
        await send({"type": "http.response.body", "body": b"", "more_body": True})
    await send({"type": "http.response.body", "body": b"x", "more_body": True})
    await send({"type": "http.response.body"})


async def bytearray_(scope, receive, send):
    await respond(send, bytearray(b"array"))


async def memoryview_(scope, receive, send):
    await respond(send, memoryview(b"a view")[2:])


async def large(scope, receive, send):
    await respond(send, b"x" * 5_000_000)


async def bytes_(scope, receive, send):
    await respond(send, b"b" * int(scope["path"].rsplit("/", 1)[1]))


async def parts_of_size(scope, receive, send):
    count, size = map(int, scope["path"].split("/")[2:])
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(count):
        await send({"type": "http.response.body", "body": b"p" * size, "more_body": True})
    await send({"type": "http.response.body"})


async def request_length(scope, receive, send):
    """Tells the length of the body, and whether all events but the last one say that more follows."""
    sizes, mores = [], []
    while not mores or mores[-1]:
        event = await receive()
        sizes.append(len(event.get("body", b"")))
        mores.append(event.get("more_body", False))
    await tell(send, {"bytes": sum(sizes), "last": not mores[-1], "others": all(mores[:-1])})


async def slow_start(scope, receive, send):
    await asyncio.sleep(0.05)
    await respond(send, b"slept")


async def trailers(scope, receive, send):
    assert scope["extensions"]["http.response.trailers"] == {}
    await send({"type": "http.response.start", "status": 200, "headers": [(b"trailer", b"x-t")], "trailers": True})
    await send({"type": "http.response.body", "body": b"body"})
    await send({"type": "http.response.trailers", "headers": [(b"x-t", b"1")], "more_trailers": True})
    await send({"type": "http.response.trailers", "headers": [(b"x-u", b"2")]})


async def early_hint(scope, receive, send):
    assert scope["extensions"]["http.response.early_hint"] == {}
    await send({"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload", b"</b.js>; rel=preload"]})
    if scope["query_string"] != b"at-once":
        await asyncio.sleep(0.02)
        await send({"type": "http.response.early_hint", "links": [b"</c.js>; rel=preload"]})
        await asyncio.sleep(0.02)
    await respond(send, b"hinted")


async def early_hint_wrong(scope, receive, send):
    names = []
    for links in ([b"a\nb"], ["text"], None):
        try:
            await send({"type": "http.response.early_hint", "links": links})
        except (TypeError, ValueError) as error:
            names.append(type(error).__name__)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        await send({"type": "http.response.early_hint", "links": [b"</late>"]})
    except RuntimeError as error:
        names.append(type(error).__name__)
    await send({"type": "http.response.body", "body": " ".join(names).encode()})


async def pathsend(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.pathsend", "path": __file__})


async def pathsend_missing(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    try:
        await send({"type": "http.response.pathsend", "path": "/no/such/file"})
    except FileNotFoundError as error:
        await send({"type": "http.response.body", "body": type(error).__name__.encode()})


async def raises(scope, receive, send):
    raise ValueError("on purpose")


async def raises_later(scope, receive, send):
    await asyncio.sleep(0.01)
    raise ValueError("on purpose")


async def raises_after_start(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    raise ValueError("on purpose")


async def raises_in_body(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"part", "more_body": True})
    raise ValueError("on purpose")


async def raises_after_response(scope, receive, send):
    await respond(send, b"complete")
    raise ValueError("on purpose")


async def returns(scope, receive, send):
    return


async def returns_in_body(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"part", "more_body": True})


async def cancels(scope, receive, send):
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def announced(scope, receive, send):
    """Announces the length of a body that is not sent."""
    status = int(scope["path"].rsplit("/", 1)[1])
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"1234")]})
    await send({"type": "http.response.body", "body": b""})


async def many_parts(scope, receive, send):
    """Sends more than may wait, and tells whether it could."""
    await send(START)
    try:
        for _ in range(20):
            await send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True})
            await asyncio.sleep(0.005)
        await send(END)
        NOTES.append("all")
    except Exception as error:
        NOTES.append(type(error).__name__)


async def receive_after_parts(scope, receive, send):
    await read(receive)
    await send(START)
    await send({"type": "http.response.body", "body": b"x", "more_body": True})
    await send(END)
    NOTES.append(await asyncio.wait_for(receive(), 5))


async def two_receivers(scope, receive, send):
    first, second = asyncio.create_task(receive()), asyncio.create_task(receive())
    events = await asyncio.wait_for(asyncio.gather(first, second), 5)
    await tell(send, [event["body"] for event in events])


async def tasks_of_messages(scope, receive, send):
    """`receive` and `send` return coroutines, of which applications make tasks."""
    body, more = b"", True
    while more:
        event = await asyncio.create_task(receive())
        body, more = body + event["body"], event["more_body"]
    pending = asyncio.create_task(receive())
    await asyncio.sleep(0.01)
    pending.cancel()
    cancelled = (await asyncio.gather(pending, return_exceptions=True))[0]
    left, start = receive(), send(START)
    left.close()
    are_coroutines = asyncio.iscoroutine(left) and asyncio.iscoroutine(start)
    await start
    await asyncio.create_task(send({"type": "http.response.body", "more_body": True}))
    text = f"{body.decode()} {type(cancelled).__name__} {are_coroutines}"
    await asyncio.gather(send({"type": "http.response.body", "body": text.encode()}))


async def cancelled_receivers(scope, receive, send):
    """Receivers that are cancelled, before the body comes and when it comes, take nothing from the next one."""
    early = asyncio.create_task(receive())
    await asyncio.sleep(0)
    early.cancel()
    unstarted = asyncio.create_task(receive())
    unstarted.cancel()
    await asyncio.wait({early, unstarted})
    body, more = b"", True
    for task in (early, unstarted):
        # On a busy machine, a part may be there already.
        if not task.cancelled():
            body, more = body + task.result()["body"], task.result()["more_body"]
    while more:
        task = asyncio.create_task(receive())
        try:
            event = await asyncio.wait_for(asyncio.shield(task), 0.01)
        except TimeoutError:
            task.cancel()
            await asyncio.wait({task})
            if task.cancelled():
                continue
            event = task.result()
        body, more = body + event["body"], event["more_body"]
    await respond(send, body)


async def two_at_once(scope, receive, send):
    """Another task cancels a receiver in the same turn in which a part wakes it."""
    event = await receive()
    body = event["body"]
    while event["more_body"]:
        first, second = asyncio.create_task(receive()), asyncio.create_task(receive())
        done, pending = await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        events = [task.result() for task in (first, second) if not task.cancelled()]
        for event in events:
            body += event.get("body", b"")
            if not event.get("more_body", False):
                break
    await respond(send, body)


async def many_receivers(scope, receive, send):
    """Asks many times whether the client has left, as `Request.is_disconnected` of Starlette."""
    await read(receive)
    await send(START)
    for _ in range(20_000):
        task = asyncio.ensure_future(receive())
        await asyncio.sleep(0)
        task.cancel()
    begun = asyncio.get_running_loop().time()
    await send(END)
    NOTES.append(asyncio.get_running_loop().time() - begun)


async def raises_with_a_receiver(scope, receive, send):
    await read(receive)

    async def wait():
        NOTES.append((await receive())["type"])

    app.receiver = asyncio.create_task(wait())
    await asyncio.sleep(0)
    raise ValueError("on purpose")


async def sends_while_read(scope, receive, send):
    """Reading the fields of a message sends another one."""

    def fields():
        try:
            send(START)
            send({"type": "http.response.body", "body": b"inner"})
        except RuntimeError as error:
            NOTES.append(type(error).__name__)
        yield (b"x-a", b"b")

    try:
        await send({"type": "http.response.start", "status": 200, "headers": fields()})
    except RuntimeError as error:
        NOTES.append(type(error).__name__)


async def sleeps(scope, receive, send):
    print("the handler sleeps", flush=True)
    await asyncio.sleep(1)
    await respond(send, b"slept")


async def works_after(scope, receive, send):
    """Works on after the response, in the task of the request."""
    await respond(send, b"begun")
    await asyncio.sleep(1)
    print("the work is done", flush=True)


def wrong(*messages):
    """Returns a handler that sends wrong messages and tells the errors of `send`."""

    async def handler(scope, receive, send):
        errors = []
        for message in messages:
            try:
                await send(message)
                errors.append(None)
            except Exception as error:
                errors.append(type(error).__name__)
        NOTES.append(errors)
        if all(error for error in errors):
            await tell(send, errors)

    return handler


START = {"type": "http.response.start", "status": 200, "headers": []}
END = {"type": "http.response.body", "body": b"end"}


async def notes(scope, receive, send):
    await tell(send, NOTES)
    NOTES.clear()


async def receive_after_response(scope, receive, send):
    await read(receive)
    await respond(send, b"x")
    NOTES.append(await receive())


async def waits_for_disconnect(scope, receive, send):
    await read(receive)
    NOTES.append((await receive())["type"])


async def stream_until_gone(scope, receive, send):
    await send(START)
    try:
        while True:
            await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
            await asyncio.sleep(0.01)
    except OSError as error:
        NOTES.append(type(error).__name__)


async def disconnect_while_streaming(scope, receive, send):
    await read(receive)
    await send(START)
    await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
    NOTES.append((await receive())["type"])


async def fast_producer(scope, receive, send):
    """Makes more than a client takes; `send` must wait."""
    await send(START)
    sent = 0
    try:
        for _ in range(2000):
            await asyncio.wait_for(send({"type": "http.response.body", "body": b"x" * 50_000, "more_body": True}), 0.3)
            sent += 50_000
    except TimeoutError:
        pass
    except OSError:
        pass
    NOTES.append(sent)


async def current_task(scope, receive, send):
    task = asyncio.current_task()
    await tell(send, isinstance(task, asyncio.Task))


async def timeout(scope, receive, send):
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)
    except TimeoutError:
        await respond(send, b"timed out")


async def timeout_of_receive(scope, receive, send):
    await read(receive)
    try:
        async with asyncio.timeout(0.01):
            await receive()
    except TimeoutError:
        await respond(send, b"timed out")


async def task_group(scope, receive, send):
    results = []

    async def add(number):
        await asyncio.sleep(0.001)
        results.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(3):
            group.create_task(add(number))
    await tell(send, sorted(results))


async def executor(scope, receive, send):
    loop = asyncio.get_running_loop()
    await tell(send, await loop.run_in_executor(None, sum, [1, 2, 3]))


async def context(scope, receive, send):
    before = VARIABLE.get()
    VARIABLE.set("polluted")
    await asyncio.sleep(0)
    await tell(send, [before, VARIABLE.get()])


async def background(scope, receive, send):
    """A task that outlives its request, and that needs the loop to go on although no descriptor is ready."""

    async def later():
        await asyncio.sleep(0.02)
        NOTES.append("later")

    app.background = asyncio.create_task(later())
    await respond(send, b"begun")


async def subprocess_(scope, receive, send):
    process = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    await respond(send, output)


async def open_connection(scope, receive, send):
    """A client in the same loop, of the same server."""
    reader, writer = await asyncio.open_connection(*scope["server"])
    writer.write(b"GET /slow-start HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await respond(send, b"slept" if b"slept" in answer else answer)


async def websocket(scope, receive, send):
    assert await receive() == {"type": "websocket.connect"}
    path = scope["path"]
    if path == "/deny-with-a-receiver":
        waiting = asyncio.create_task(receive())
        await asyncio.sleep(0)
        await send({"type": "websocket.close"})
        NOTES.append((await asyncio.wait_for(waiting, 5))["type"])
        return None
    if path == "/deny":
        return await send({"type": "websocket.close"})
    if path == "/denial":
        await send({"type": "websocket.http.response.start", "status": 401, "headers": [(b"x-why", b"no")]})
        await send({"type": "websocket.http.response.body", "body": b"not ", "more_body": True})
        return await send({"type": "websocket.http.response.body", "body": b"you"})
    if path == "/raises":
        raise ValueError("on purpose")
    if path == "/returns":
        return None
    protocols = scope["subprotocols"]
    accept = {"type": "websocket.accept", "headers": [(b"x-accept", b"1")]}
    await send(accept | ({"subprotocol": protocols[-1]} if protocols else {}))
    if path == "/closes":
        await send({"type": "websocket.close", "code": 4000, "reason": "enough"})
        NOTES.append(await receive())
    elif path == "/returns-open":
        return None
    elif path == "/raises-open":
        raise ValueError("on purpose")
    elif path == "/scope":
        seen = {key: value for key, value in scope.items() if key not in ("headers", "state")}
        await send({"type": "websocket.send", "text": json.dumps(seen, default=lambda b: b.decode())})
        await receive()
    elif path == "/wrong":
        errors = []
        for message in [{"type": "websocket.send"}, {"type": "websocket.send", "text": b"bytes"},
                        {"type": "websocket.close", "code": 1006}, {"type": "http.response.start"}, accept]:
            try:
                await send(message)
            except Exception as error:
                errors.append(type(error).__name__)
        await send({"type": "websocket.send", "text": json.dumps(errors)})
    elif path == "/two-senders":
        # Both wait while the client does not read, and must end when it goes away.
        async def flood():
            while True:
                await send({"type": "websocket.send", "bytes": b"x" * 100_000})

        results = await asyncio.gather(flood(), flood(), return_exceptions=True)
        NOTES.append([type(result).__name__ for result in results])
    else:
        while True:
            event = await receive()
            if event["type"] == "websocket.disconnect":
                NOTES.append({"code": event["code"], "reason": event.get("reason")})
                return None
            reply = {key: event[key] for key in ("text", "bytes") if event.get(key) is not None}
            await send({"type": "websocket.send", **reply})
    return None


HTTP = {
    name.rstrip("_"): value
    for name, value in list(globals().items())
    if asyncio.iscoroutinefunction(value) and name not in ("app", "lifespan", "websocket", "respond", "tell", "read")
}
HTTP |= {
    "wrong_unknown": wrong({"type": "http.response.nothing"}),
    "wrong_no_type": wrong({"status": 200}),
    "wrong_not_a_dict": wrong(["type"]),
    "wrong_body_first": wrong(END),
    "wrong_no_status": wrong({"type": "http.response.start"}),
    "wrong_status_text": wrong({"type": "http.response.start", "status": "200"}),
    "wrong_status_100": wrong({"type": "http.response.start", "status": 100}),
    "wrong_status_1000": wrong({"type": "http.response.start", "status": 1000}),
    "wrong_header_text": wrong({"type": "http.response.start", "status": 200, "headers": [("a", "b")]}),
    "wrong_header_name": wrong({"type": "http.response.start", "status": 200, "headers": [(b"a b", b"c")]}),
    "wrong_header_value": wrong({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b\r\nc: d")]}),
    "wrong_header_shape": wrong({"type": "http.response.start", "status": 200, "headers": [b"ab"]}),
    "wrong_two_starts": wrong(START, START, END),
    "wrong_two_ends": wrong(START, END, END),
    "wrong_start_behind": wrong(START, END, START),
    "wrong_body_text": wrong(START, {"type": "http.response.body", "body": "text"}, END),
    "wrong_trailers": wrong(START, {"type": "http.response.trailers", "headers": []}, END),
    "wrong_websocket": wrong({"type": "websocket.accept"}),
}
