"""A small application for each framework. Each has the same paths."""

import json


def fastapi_app():
    from contextlib import asynccontextmanager

    from fastapi import FastAPI, Request, WebSocket
    from fastapi.responses import StreamingResponse
    from pydantic import BaseModel

    class Item(BaseModel):
        name: str
        count: int = 1

    @asynccontextmanager
    async def lifespan(app):
        yield {"from_lifespan": "yes"}

    app = FastAPI(lifespan=lifespan)

    @app.get("/item/{number}")
    async def item(number: int, request: Request) -> dict:
        return {"number": number, "state": request.state.from_lifespan}

    @app.get("/sync")
    def sync() -> dict:
        return {"in": "a thread"}

    @app.post("/item")
    async def post(item: Item) -> Item:
        return item

    @app.get("/stream")
    async def stream():
        async def parts():
            for number in range(5):
                yield f"{number},"

        return StreamingResponse(parts(), media_type="text/plain")

    @app.get("/raises")
    async def raises():
        raise ValueError("on purpose")

    @app.websocket("/ws")
    async def ws(websocket: WebSocket):
        await websocket.accept()
        async for text in websocket.iter_text():
            await websocket.send_text(text.upper())

    return app


def starlette_app():
    from starlette.applications import Starlette
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.responses import FileResponse, JSONResponse, StreamingResponse
    from starlette.routing import Route, WebSocketRoute

    class Tag(BaseHTTPMiddleware):
        async def dispatch(self, request, call_next):
            response = await call_next(request)
            response.headers["x-tag"] = "1"
            return response

    async def item(request):
        return JSONResponse({"number": int(request.path_params["number"])})

    async def post(request):
        return JSONResponse(await request.json())

    async def stream(request):
        async def parts():
            for number in range(5):
                yield f"{number},"

        return StreamingResponse(parts(), media_type="text/plain")

    async def file(request):
        return FileResponse(__file__)

    async def ws(websocket):
        await websocket.accept()
        async for text in websocket.iter_text():
            await websocket.send_text(text.upper())

    routes = [Route("/item/{number}", item), Route("/item", post, methods=["POST"]), Route("/stream", stream),
              Route("/file", file), WebSocketRoute("/ws", ws)]  # fmt: skip
    app = Starlette(routes=routes)
    app.add_middleware(Tag)
    return app


def django_app():
    import django
    from channels.generic.websocket import AsyncWebsocketConsumer
    from channels.routing import ProtocolTypeRouter, URLRouter
    from django.conf import settings
    from django.core.asgi import get_asgi_application
    from django.http import JsonResponse, StreamingHttpResponse
    from django.urls import path

    if not settings.configured:
        settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, SECRET_KEY="for tests", DEBUG=False)
        django.setup()

    async def item(request, number):
        return JsonResponse({"number": number})

    def post(request):
        return JsonResponse(json.loads(request.body))

    async def stream(request):
        async def parts():
            for number in range(5):
                yield f"{number},"

        return StreamingHttpResponse(parts(), content_type="text/plain")

    class Upper(AsyncWebsocketConsumer):
        async def receive(self, text_data=None, bytes_data=None):
            await self.send(text_data=text_data.upper())

    global urlpatterns
    urlpatterns = [path("item/<int:number>", item), path("item", post), path("stream", stream)]
    return ProtocolTypeRouter(
        {"http": get_asgi_application(), "websocket": URLRouter([path("ws", Upper.as_asgi())])}
    )


def quart_app():
    from quart import Quart, request, websocket

    app = Quart(__name__)

    @app.get("/item/<int:number>")
    async def item(number):
        return {"number": number}

    @app.post("/item")
    async def post():
        return await request.get_json()

    @app.get("/stream")
    async def stream():
        async def parts():
            for number in range(5):
                yield f"{number},".encode()

        return parts(), 200, {"Content-Type": "text/plain"}

    @app.websocket("/ws")
    async def ws():
        while True:
            await websocket.send((await websocket.receive()).upper())

    return app


def litestar_app():
    from litestar import Litestar, get, post, websocket_listener
    from litestar.response import Stream

    @get("/item/{number:int}")
    async def item(number: int) -> dict[str, int]:
        return {"number": number}

    @post("/item", status_code=200)
    async def create(data: dict[str, object]) -> dict[str, object]:
        return data

    @get("/stream", media_type="text/plain")
    async def stream() -> Stream:
        async def parts():
            for number in range(5):
                yield f"{number},"

        return Stream(parts())

    @websocket_listener("/ws")
    async def ws(data: str) -> str:
        return data.upper()

    return Litestar([item, create, stream, ws])


def flask_app():
    from flask import Flask, request

    app = Flask(__name__)

    @app.get("/item/<int:number>")
    def item(number):
        return {"number": number}

    @app.post("/item")
    def post():
        return request.get_json()

    @app.get("/stream")
    def stream():
        return (f"{number}," for number in range(5)), {"Content-Type": "text/plain"}

    return app


def django_wsgi_app():
    from django.core.wsgi import get_wsgi_application

    django_app()
    return get_wsgi_application()


async def client_app(scope, receive, send):
    """Calls this server with aiohttp's client, in the same event loop."""
    import aiohttp

    if scope["type"] != "http":
        raise RuntimeError(scope["type"])
    if scope["path"] == "/item/7":
        body = b'{"number": 7}'
    else:
        host, port = scope["server"]
        async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}/item/7") as response:
            body = await response.read()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": body})
