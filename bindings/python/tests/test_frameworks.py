"""Small applications of the frameworks that people use."""

import importlib
from pathlib import Path

import httpx
import pytest

from websockets.sync.client import connect

#: The framework, its module, and whether its application has WebSockets.
FRAMEWORKS = [
    ("fastapi", "fastapi", True),
    ("starlette", "starlette", True),
    ("django", "channels", True),
    ("quart", "quart", True),
    ("litestar", "litestar", True),
    ("flask", "flask", False),
    ("django_wsgi", "channels", False),
]


@pytest.mark.parametrize(("name", "module", "has_websockets"), FRAMEWORKS, ids=[row[0] for row in FRAMEWORKS])
def test_an_application(start, name, module, has_websockets):
    importlib.import_module(module)
    server = start(f"framework_apps:{name}_app", "--factory")
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
    server = start("framework_apps:fastapi_app", "--factory", "--lifespan", "on")
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        assert client.get("/item/7").json() == {"number": 7, "state": "yes"}
        assert client.get("/sync").json() == {"in": "a thread"}
        assert client.get("/item/x").status_code == 422
        assert client.get("/raises").status_code == 500
        assert "/item/{number}" in client.get("/openapi.json").json()["paths"]
    assert "on purpose" in server.log


def test_starlette_sends_files_and_runs_middleware(start):
    server = start("framework_apps:starlette_app", "--factory")
    response = httpx.get(server.url + "/file", trust_env=False)
    assert response.content == (Path(__file__).parent / "framework_apps.py").read_bytes()
    assert response.headers["x-tag"] == "1"


def test_a_client_of_aiohttp_in_the_same_loop(start):
    server = start("framework_apps:client_app")
    assert httpx.get(server.url + "/", trust_env=False, timeout=20).json() == {"number": 7}
