"""WebSockets of an ASGI application, with the client `websockets`."""

import json
import time

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect


@pytest.fixture
def url(server):
    return server.url.replace("http", "ws")


def notes(server) -> list:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = httpx.get(server.url + "/notes", trust_env=False).json()
        if found:
            return found
    raise AssertionError("the handler has not ended")


@pytest.mark.parametrize("compression", [None, "deflate"])
@pytest.mark.parametrize("message", ["hi", "", "é" * 1000, b"", b"bytes", b"x" * 1_000_000, "y" * 300_000])
def test_messages_are_echoed(server, url, message, compression):
    with connect(url + "/echo", compression=compression, max_size=None) as socket:
        socket.send(message)
        assert socket.recv() == message
        for number in range(50):
            socket.send(str(number))
        assert [socket.recv() for _ in range(50)] == [str(number) for number in range(50)]
        socket.send([b"in ", b"fragments"])
        assert socket.recv() == b"in fragments"
        assert socket.ping().wait(5)
    assert notes(server) == [{"code": 1000, "reason": ""}]


def test_the_code_of_the_peer_is_told(server, url):
    with connect(url + "/echo") as socket:
        socket.close(4321, "why not")
    assert notes(server) == [{"code": 4321, "reason": "why not"}]


def test_a_connection_that_breaks_is_told(server, url):
    socket = connect(url + "/echo", legacy=True)
    socket.socket.close()
    assert notes(server)[0]["code"] == 1006


def test_the_scope(url):
    with connect(url + "/scope?a=b", subprotocols=["one", "two"]) as socket:
        assert socket.subprotocol == "two"
        assert socket.response.headers["x-accept"] == "1"
        scope = json.loads(socket.recv())
    assert scope["type"] == "websocket"
    assert scope["scheme"] == "ws"
    assert scope["path"] == "/scope"
    assert scope["query_string"] == "a=b"
    assert scope["subprotocols"] == ["one", "two"]
    assert scope["extensions"] == {"websocket.http.response": {}}
    assert scope["asgi"]["version"] == "3.0"


@pytest.mark.parametrize(
    ("path", "status", "body"),
    [("/deny", 403, b""), ("/denial", 401, b"not you"), ("/raises", 500, b"Internal Server Error"), ("/returns", 500, None)],
)
def test_a_handshake_is_refused(url, path, status, body):
    with pytest.raises(InvalidStatus) as caught, connect(url + path):
        pass
    response = caught.value.response
    assert response.status_code == status
    assert body is None or response.body == body
    assert path != "/denial" or response.headers["x-why"] == "no"


@pytest.mark.parametrize(("path", "code", "reason"), [("/closes", 4000, "enough"), ("/returns-open", 1000, ""), ("/raises-open", 1011, "")])
def test_the_application_closes(server, url, path, code, reason):
    with connect(url + path) as socket, pytest.raises(ConnectionClosed) as caught:
        socket.recv()
    assert caught.value.rcvd.code == code
    assert caught.value.rcvd.reason == reason
    if path == "/closes":
        assert notes(server)[0]["type"] == "websocket.disconnect"


def test_a_receiver_ends_when_the_handshake_is_refused(server, url):
    with pytest.raises(InvalidStatus), connect(url + "/deny-with-a-receiver"):
        pass
    assert notes(server) == ["websocket.disconnect"]


def test_wrong_messages_raise(url):
    with connect(url + "/wrong") as socket:
        assert json.loads(socket.recv()) == ["ValueError", "TypeError", "ValueError", "ValueError", "RuntimeError"]


def test_two_senders_end_when_the_client_goes_away(server, url):
    """granian's event loop once froze there."""
    socket = connect(url + "/two-senders", max_size=None, compression=None, legacy=True)
    time.sleep(0)
    socket.socket.close()
    assert notes(server) == [["OSError", "OSError"]]
    assert httpx.get(server.url + "/slow-start", trust_env=False).content == b"slept"


def test_a_plain_request_to_a_websocket_path_is_one_of_http(server):
    assert httpx.get(server.url + "/slow-start", trust_env=False).status_code == 200
    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "12"}
    assert httpx.get(server.url + "/echo", headers=headers, trust_env=False).status_code == 426
