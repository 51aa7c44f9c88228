"""The applications that every server serves."""

import asyncio

TEN_KB = b"x" * 10_000
PART = b"y" * 1024
TEXT = [(b"content-type", b"text/plain")]


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        raise RuntimeError(scope["type"])
    path = scope["path"]
    if path == "/hello":
        await send({"type": "http.response.start", "status": 200, "headers": TEXT})
        await send({"type": "http.response.body", "body": b"Hello, world!"})
    elif path == "/get":
        await send({"type": "http.response.start", "status": 200, "headers": TEXT})
        await send({"type": "http.response.body", "body": TEN_KB})
    elif path == "/echo":
        parts = []
        while True:
            event = await receive()
            parts.append(event["body"])
            if not event["more_body"]:
                break
        await send({"type": "http.response.start", "status": 200, "headers": TEXT})
        await send({"type": "http.response.body", "body": b"".join(parts)})
    elif path == "/sleep":
        await asyncio.sleep(0.2)
        await send({"type": "http.response.start", "status": 200, "headers": TEXT})
        await send({"type": "http.response.body", "body": b"slept"})
    elif path == "/events":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"data: begun\n\n", "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
    elif path == "/stream":
        await send({"type": "http.response.start", "status": 200, "headers": TEXT})
        for _ in range(64):
            await send({"type": "http.response.body", "body": PART, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


SENDERS = set()


async def fan(scope, receive, send):
    """Sends each message to all connections."""
    if scope["type"] != "websocket":
        raise RuntimeError(scope["type"])
    await receive()
    await send({"type": "websocket.accept"})
    SENDERS.add(send)
    try:
        while True:
            event = await receive()
            if event["type"] == "websocket.disconnect":
                return
            message = {"type": "websocket.send", "text": event["text"]}
            for one in SENDERS:
                await one(message)
    finally:
        SENDERS.discard(send)


async def rsgi(scope, protocol):
    protocol.response_str(200, [("content-type", "text/plain")], "Hello, world!")


async def websocket(scope, receive, send):
    if scope["type"] != "websocket":
        raise RuntimeError(scope["type"])
    await receive()
    await send({"type": "websocket.accept"})
    while True:
        event = await receive()
        if event["type"] == "websocket.disconnect":
            return
        await send({"type": "websocket.send", "text": event["text"]})


def wsgi(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [b"Hello, world!"]


def fastapi():
    from fastapi import FastAPI
    from pydantic import BaseModel

    app = FastAPI()

    class Item(BaseModel):
        name: str
        price: float
        tags: list[str]

    @app.get("/item/{number}")
    async def item(number: int) -> Item:
        return Item(name=f"item {number}", price=1.5, tags=["a", "b"])

    return app


def flask():
    from flask import Flask

    app = Flask(__name__)

    @app.get("/hello")
    def hello():
        return "Hello, world!"

    return app


try:
    fastapi_app = fastapi()
except ImportError:
    fastapi_app = None
try:
    flask_app = flask()
except ImportError:
    flask_app = None
