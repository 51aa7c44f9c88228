"""FastAPI with models, streams, state of the lifespan and WebSockets.

    highwire-server fastapi_app:app
"""

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
