"""Quart with JSON, streams and WebSockets.

    highwire-server quart_app:app
"""

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
