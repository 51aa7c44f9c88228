"""Applications of RSGI, the interface of granian."""

import json
import time
from pathlib import Path

import httpx
import pytest
from conftest import HERE, Running, free_port
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

SOURCE = (Path(__file__).parent / "rsgi_app.py").read_bytes()


@pytest.fixture(scope="module", params=["app", "function"])
def server(request, tmp_path_factory):
    log = tmp_path_factory.mktemp("rsgi") / "server.log"
    running = Running([f"rsgi_app:{request.param}", "--port", str(free_port())], HERE, log)
    running.wait_for("listening on")
    yield running
    assert running.stop() == 0
    assert ("the end" in running.log) == (request.param == "app")
    assert ("the start" in running.log) == (request.param == "app")


@pytest.fixture(scope="module")
def client(server):
    with httpx.Client(base_url=server.url, timeout=20, trust_env=False) as client:
        yield client


def notes(client) -> list:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = client.get("/notes").json()
        if found:
            return found
    raise AssertionError("the handler has not ended")


#: Method, path, body, status, and the body of the response.
CASES = [
    ("GET", "/hello", b"", 200, b"hello"),
    ("HEAD", "/hello", b"", 200, b""),
    ("GET", "/empty", b"", 204, b""),
    ("POST", "/echo", b"", 200, b""),
    ("POST", "/echo", b"x" * 3_000_000, 200, b"x" * 3_000_000),
    ("GET", "/echo", b"", 200, b""),
    ("POST", "/parts", b"x" * 300_000, 200, b"300000"),
    ("POST", "/parts", b"", 200, b"0"),
    ("GET", "/parts", b"", 200, b"0"),
    ("GET", "/file", b"", 200, SOURCE),
    ("GET", "/file-range", b"", 206, SOURCE[3:6]),
    ("GET", "/stream", b"", 200, b"".join(b"x" * 1000 + b"%d," % number for number in range(100))),
    ("GET", "/missing-file", b"", 404, b""),
    ("GET", "/stream-in-a-task", b"", 200, b"later"),
    ("GET", "/raises", b"", 500, b"Internal Server Error"),
    ("GET", "/returns", b"", 500, b"Internal Server Error"),
    ("GET", "/wrong", b"", 200, b"ValueError ValueError ValueError TypeError TypeError"),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "expected"), CASES, ids=lambda value: str(value)[:30])
def test_case(client, method, path, body, status, expected):
    response = client.request(method, path, content=body)
    assert (response.status_code, response.content) == (status, expected)


def test_a_chunked_body(client):
    assert client.post("/parts", content=iter([b"ab", b"cd"])).text == "4"
    assert client.post("/echo", content=iter([b"ab", b"cd"])).text == "abcd"


def test_fields(client):
    response = client.get("/hello")
    assert [value for name, value in response.headers.raw if name.lower() == b"x-own"] == [b"caf\xe9"]
    assert response.headers["content-type"] == "text/plain"


def test_scope(client, server):
    scope = client.get("/scope/a%20b?q=%20", headers=[("X-Test", "1"), ("x-test", "2")]).json()
    assert scope["proto"] == "http"
    assert (scope["http_version"], scope["rsgi_version"], scope["scheme"]) == ("1.1", "1.5", "http")
    assert (scope["method"], scope["path"], scope["query_string"]) == ("GET", "/scope/a b", "q=%20")
    assert scope["server"] == f"127.0.0.1:{server.port}"
    assert scope["client"].startswith("127.0.0.1:")
    assert ["host", scope["server"]] in scope["headers"]
    assert scope["mapping"] == [True, "1", 1, "1", ["1", "2"], True]


@pytest.mark.parametrize(("path", "note"), [("/until-gone", "ProtocolClosed"), ("/disconnect", "left")])
def test_a_client_that_leaves(client, server, path, note):
    connection = server.connect()
    connection.sendall(b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n" % path.encode())
    if path == "/until-gone":
        connection.recv(10)
    client.get("/notes")
    connection.close()
    assert notes(client) == [note]


def test_one_response_for_each_request(client):
    client.get("/notes")
    assert client.get("/twice").text == "once"
    assert notes(client) == ["ProtocolError"]


def test_an_exception_in_a_stream_is_seen_by_the_client(client):
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        client.get("/raises-in-stream")


@pytest.mark.parametrize("message", ["text", "", b"bytes", b"", "x" * 100_000])
def test_websocket_messages(client, server, message):
    client.get("/notes")
    with connect(server.url.replace("http", "ws") + "/ws") as socket:
        socket.send(message)
        assert socket.recv() == message
    assert notes(client) == [[0, None]]


def test_websockets_that_are_refused_or_closed(server):
    url = server.url.replace("http", "ws")
    with pytest.raises(InvalidStatus) as caught, connect(url + "/deny"):
        pass
    assert caught.value.response.status_code == 403
    for path, code in (("/closes", 4000), ("/raises", 1011)):
        with connect(url + path) as socket, pytest.raises(ConnectionClosed) as closed:
            socket.recv()
        assert closed.value.rcvd.code == code


def test_json_is_read(client):
    assert json.loads(client.post("/echo", json={"a": 1}).content) == {"a": 1}
