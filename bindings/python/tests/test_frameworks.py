"""The examples: small applications of the frameworks that people use."""

import importlib
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

EXAMPLES = Path(__file__).parent.parent / "examples"

#: The application, the module that it needs, and whether it has WebSockets.
FRAMEWORKS = [
    ("fastapi_app:app", "fastapi", True),
    ("starlette_app:app", "starlette", True),
    ("django_app:application", "channels", True),
    ("quart_app:app", "quart", True),
    ("litestar_app:app", "litestar", True),
    ("flask_app:app", "flask", False),
    ("django_app:wsgi_application", "channels", False),
]


@pytest.mark.parametrize(("app", "module", "has_websockets"), FRAMEWORKS, ids=[row[0] for row in FRAMEWORKS])
def test_an_application(start, app, module, has_websockets):
    importlib.import_module(module)
    server = start(app, folder=EXAMPLES)
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        for _ in range(3):
            assert client.get("/item/7").json()["number"] == 7
            assert client.post("/item", json={"name": "x", "count": 2}).json() == {"name": "x", "count": 2}
            assert client.get("/stream").text == "0,1,2,3,4,"
        assert client.get("/nowhere").status_code == 404
    if has_websockets:
        with connect(server.url.replace("http", "ws") + "/ws") as socket:
            for text in ("hello", "again"):
                socket.send(text)
                assert socket.recv() == text.upper()
    assert server.stop() == 0
    assert "Traceback" not in server.log


def test_fastapi(start):
    server = start("fastapi_app:app", "--lifespan", "on", folder=EXAMPLES)
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        assert client.get("/item/7").json() == {"number": 7, "state": "yes"}
        assert client.get("/sync").json() == {"in": "a thread"}
        assert client.get("/item/x").status_code == 422
        assert client.get("/raises").status_code == 500
        assert "/item/{number}" in client.get("/openapi.json").json()["paths"]
    assert "on purpose" in server.log


def test_starlette_sends_files_and_runs_middleware(start):
    server = start("starlette_app:app", folder=EXAMPLES)
    response = httpx.get(server.url + "/file", trust_env=False)
    assert response.content == (EXAMPLES / "starlette_app.py").read_bytes()
    assert response.headers["x-tag"] == "1"


def test_a_client_of_aiohttp_in_the_same_loop(start):
    server = start("client_app:app")
    assert httpx.get(server.url + "/", trust_env=False, timeout=20).json() == {"number": 7}


def test_the_embedded_server():
    program = [sys.executable, str(EXAMPLES / "embedded.py"), "0"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        try:
            address = process.stdout.readline().removeprefix("listening on ").strip()
            assert httpx.get(f"http://{address}/", trust_env=False).text == "hello\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
        finally:
            process.kill()
