"""The server in an event loop of another program."""

import asyncio
import threading

import httpx
import pytest

from highwire_server import Config, Server


def app_of(text: str):
    async def app(scope, receive, send):
        assert scope["type"] == "http"
        if scope["path"] == "/slow":
            await asyncio.sleep(0.3)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": text.encode()})

    return app


def server_of(text: str, **settings) -> Server:
    return Server(Config(app=app_of(text), bind=["127.0.0.1:0"], **settings))


async def started(server: Server) -> asyncio.Task:
    """Starts a server, and waits until it listens."""
    listens = asyncio.Event()
    task = asyncio.create_task(server.serve(on_start=listens.set))
    await asyncio.wait((task, asyncio.create_task(listens.wait())), return_when=asyncio.FIRST_COMPLETED)
    return task


async def get(server: Server, path: str = "/") -> str:
    async with httpx.AsyncClient(trust_env=False, timeout=10) as client:
        return (await client.get(f"http://{server.addresses[0]}{path}")).text


@pytest.fixture(params=["asyncio", "uvloop"])
def run(request):
    """A function that runs a coroutine in an event loop."""
    factory = None
    if request.param == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop

    def run(coroutine):
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(asyncio.wait_for(coroutine, 20))

    return run


def test_it_serves_in_a_loop_that_runs(run):
    async def main():
        server = server_of("hello")
        task = await started(server)
        assert await asyncio.gather(*(get(server) for _ in range(20))) == ["hello"] * 20
        slow = asyncio.create_task(get(server, "/slow"))
        await asyncio.sleep(0.1)
        server.should_exit = True
        assert await slow == "hello", "a request in progress is finished"
        await task
        assert server.should_exit
        with pytest.raises(httpx.ConnectError):
            await get(server)

    run(main())


def test_cancelling_stops_it(run):
    async def main():
        server = server_of("hello")
        task = await started(server)
        slow = asyncio.create_task(get(server, "/slow"))
        await asyncio.sleep(0.1)
        task.cancel()
        assert await slow == "hello"
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())


def test_two_servers_in_one_loop(run):
    async def main():
        servers = [server_of("one"), server_of("two", engine="readiness")]
        tasks = [await started(server) for server in servers]
        assert await asyncio.gather(*(get(server, "/slow") for server in servers)) == ["one", "two"]
        for server in servers:
            server.stop()
        await asyncio.gather(*tasks)

    run(main())


def test_another_thread_stops_it(run):
    async def main():
        server = server_of("hello")
        task = await started(server)
        thread = threading.Thread(target=setattr, args=(server, "should_exit", True))
        thread.start()
        await asyncio.wait_for(task, 5)
        thread.join()

    run(main())


def test_the_lifespan_ends_if_the_address_is_taken(run):
    seen = []

    async def app(scope, receive, send):
        assert scope["type"] == "lifespan"
        while True:
            what = (await receive())["type"]
            seen.append(what)
            await send({"type": f"{what}.complete"})
            if what == "lifespan.shutdown":
                return

    async def main():
        first = server_of("hello")
        task = await started(first)
        with pytest.raises(OSError):
            await Server(Config(app=app, bind=first.addresses)).serve()
        assert seen == ["lifespan.startup", "lifespan.shutdown"]
        first.stop()
        await task

    run(main())


def test_a_wrong_setting_raises(run):
    async def main():
        with pytest.raises(ValueError, match="http must be"):
            await server_of("hello", http="3").serve()

    run(main())
