"""Starlette with middleware, files, streams and WebSockets.

    highwire-server starlette_app:app
"""

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
