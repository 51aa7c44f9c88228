"""The server beside other work, in an event loop that the program runs itself.

    python embedded.py [PORT]
"""

import asyncio
import signal
import sys

from highwire_server import Config, Server

served = 0


async def app(scope, receive, send):
    global served
    if scope["type"] != "http":
        raise RuntimeError("only requests are handled")
    served += 1
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello\n"})


async def report():
    while True:
        await asyncio.sleep(10)
        print(f"{served} requests so far", flush=True)


async def main():
    port = sys.argv[1] if len(sys.argv) > 1 else "8000"
    server = Server(Config(app=app, bind=[f"127.0.0.1:{port}"]))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, server.stop)
    reporter = asyncio.create_task(report())
    await server.serve(on_start=lambda: print("listening on", *server.addresses, flush=True))
    reporter.cancel()


asyncio.run(main())
