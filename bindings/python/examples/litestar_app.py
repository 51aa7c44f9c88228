"""Litestar with JSON, streams and WebSockets.

    highwire-server litestar_app:app
"""

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


app = Litestar([item, create, stream, ws])
