"""Folders whose files the server sends itself."""

import httpx
import pytest

ASGI = '''
async def app(scope, receive, send):
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"app " + scope["path"].encode()})
'''

WSGI = '''
def app(environ, start_response):
    start_response("200 OK", [])
    return [b"app ", environ["PATH_INFO"].encode()]
'''


@pytest.fixture(params=["asgi", "wsgi"])
def client(request, tmp_path, start):
    for name, text in {"public/a.css": "a {}", "public/.hidden": "x", "media/b.txt": "0123456789", "secret": "x"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "public" / "big.bin").write_bytes(bytes(range(256)) * 40_000)
    (tmp_path / "app.py").write_text(ASGI if request.param == "asgi" else WSGI)
    server = start(
        "app:app", "--interface", request.param, "--static-path-mount", "public", "--static-path-route", "/static",
        "--static-path-mount", "media", "--static-path-route", "/media/", "--static-path-expires", "60", folder=tmp_path,
    )  # fmt: skip
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        yield client


def test_files_of_mounted_folders(client):
    response = client.get("/static/a.css")
    assert (response.status_code, response.text) == (200, "a {}")
    assert response.headers["content-type"].startswith("text/css")
    assert response.headers["cache-control"] == "max-age=60"
    assert client.get("/static/a.css", headers={"If-None-Match": response.headers["etag"]}).status_code == 304
    part = client.get("/media/b.txt", headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.text) == (206, "234")
    assert client.head("/media/b.txt").headers["content-length"] == "10"
    assert client.get("/static/big.bin").content == bytes(range(256)) * 40_000


def test_other_paths_are_those_of_the_application(client):
    for path in ("/", "/static", "/staticx/a.css", "/x/static/a.css"):
        assert client.get(path).text == f"app {path}"


@pytest.mark.parametrize("path", ["/static/none", "/static/.hidden", "/static/%2e%2e/secret", "/static/..%2fsecret", "/media/x/"])
def test_what_is_not_in_the_folder_is_not_found(client, path):
    assert client.get(path).status_code == 404
    assert client.get("/").text == "app /"


def test_files_are_only_read(client):
    assert client.post("/static/a.css", content=b"x").status_code == 405
    assert client.get("/static/a.css").text == "a {}"
