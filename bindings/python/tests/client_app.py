"""An application that calls its own server with aiohttp's client, in the same event loop."""

import aiohttp


async def app(scope, receive, send):
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
