"""What ASGI demands of a server, as cases of data: a request, and the response that must follow."""

import json
import socket
import time

import httpx
import pytest

#: Method, path, request body, status, and the response's body or JSON value; `None` is any.
CASES = [
    ("GET", "/slow-start", b"", 200, b"slept"),
    ("HEAD", "/slow-start", b"", 200, b""),
    ("POST", "/echo", b"", 200, b""),
    ("POST", "/echo", b"hello", 200, b"hello"),
    ("PUT", "/echo", b"x" * 70_000, 200, b"x" * 70_000),
    ("POST", "/echo", b"y" * 3_000_000, 200, b"y" * 3_000_000),
    ("DELETE", "/echo", b"z", 200, b"z"),
    ("GET", "/first-event", b"", 200, {"type": "http.request", "body": "", "more_body": False}),
    ("POST", "/first-event", b"abc", 200, None),
    *[("GET", f"/status/{status}", b"", status, b"") for status in (200, 201, 202, 204, 301, 304, 400, 404, 418, 500, 503, 599)],
    ("GET", "/headers", b"", 200, b"x"),
    ("GET", "/header-tuple", b"", 200, b""),
    ("GET", "/no-headers", b"", 204, b""),
    ("GET", "/parts", b"", 200, b"0,1,2,3,4,end"),
    ("GET", "/parts-of-length", b"", 200, b"abcdef"),
    ("HEAD", "/parts-of-length", b"", 200, b""),
    ("GET", "/empty-parts", b"", 200, b"x"),
    ("GET", "/bytearray", b"", 200, b"array"),
    ("GET", "/memoryview", b"", 200, b"view"),
    ("GET", "/large", b"", 200, b"x" * 5_000_000),
    ("GET", "/trailers", b"", 200, b"body"),
    ("GET", "/pathsend-missing", b"", 200, b"FileNotFoundError"),
    ("GET", "/raises", b"", 500, b"Internal Server Error"),
    ("POST", "/raises", b"body", 500, b"Internal Server Error"),
    ("GET", "/raises-later", b"", 500, b"Internal Server Error"),
    ("GET", "/raises-after-start", b"", 500, b"Internal Server Error"),
    ("GET", "/raises-after-response", b"", 200, b"complete"),
    ("GET", "/returns", b"", 500, b"Internal Server Error"),
    ("GET", "/cancels", b"", 500, b"Internal Server Error"),
    ("GET", "/current-task", b"", 200, True),
    ("GET", "/timeout", b"", 200, b"timed out"),
    ("GET", "/timeout-of-receive", b"", 200, b"timed out"),
    ("POST", "/timeout-of-receive", b"body", 200, b"timed out"),
    ("GET", "/task-group", b"", 200, [0, 1, 2]),
    ("GET", "/executor", b"", 200, 6),
    ("GET", "/context", b"", 200, ["unset", "polluted"]),
    ("GET", "/context", b"", 200, ["unset", "polluted"]),
    ("GET", "/subprocess", b"", 200, b"hello\n"),
    ("GET", "/open-connection", b"", 200, b"slept"),
    ("GET", "/wrong-unknown", b"", 200, ["ValueError"]),
    ("GET", "/wrong-no-type", b"", 200, ["ValueError"]),
    ("GET", "/wrong-not-a-dict", b"", 200, ["TypeError"]),
    ("GET", "/wrong-body-first", b"", 200, ["RuntimeError"]),
    ("GET", "/wrong-no-status", b"", 200, ["ValueError"]),
    ("GET", "/wrong-status-text", b"", 200, ["TypeError"]),
    ("GET", "/wrong-status-100", b"", 200, ["ValueError"]),
    ("GET", "/wrong-status-1000", b"", 200, ["ValueError"]),
    ("GET", "/wrong-header-text", b"", 200, ["TypeError"]),
    ("GET", "/wrong-header-name", b"", 200, ["ValueError"]),
    ("GET", "/wrong-header-value", b"", 200, ["ValueError"]),
    ("GET", "/wrong-header-shape", b"", 200, ["TypeError"]),
    ("GET", "/wrong-websocket", b"", 200, ["ValueError"]),
    ("GET", "/wrong-two-starts", b"", 200, b"end"),
    ("GET", "/wrong-two-ends", b"", 200, b"end"),
    ("GET", "/wrong-start-behind", b"", 200, b"end"),
    ("GET", "/wrong-body-text", b"", 200, b"end"),
    ("GET", "/wrong-trailers", b"", 200, b"end"),
]


@pytest.fixture(scope="session", params=["http1", "http2"])
def client(request, server):
    versions = {"http1": request.param == "http1", "http2": request.param == "http2"}
    with httpx.Client(base_url=server.url, timeout=20, trust_env=False, **versions) as client:
        yield client


def notes(client) -> list:
    return client.get("/notes").json()


def wait_for_notes(client) -> list:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        found = notes(client)
        if found:
            return found
    raise AssertionError("the handler has not ended")


@pytest.mark.parametrize(("method", "path", "body", "status", "expected"), CASES, ids=lambda value: str(value)[:30])
def test_case(client, method, path, body, status, expected):
    response = client.request(method, path, content=body)
    assert response.status_code == status
    if isinstance(expected, bytes):
        assert response.content == expected
    elif expected is not None:
        assert response.json() == expected
    notes(client)


def test_scope(client, server):
    is_http2 = client.get("/status/200").http_version == "HTTP/2"
    response = client.get("/scope/a%20b/%C3%A9%2F?q=1&r=%20", headers=[("X-Test", "1"), ("x-test", "2")])
    scope = response.json()
    assert scope["type"] == "http"
    assert scope["asgi"] == {"version": "3.0", "spec_version": "2.5"}
    assert scope["http_version"] == ("2" if is_http2 else "1.1")
    assert scope["method"] == "GET"
    assert scope["scheme"] == "http"
    assert scope["path"] == "/scope/a b/é/"
    assert scope["raw_path"] == "/scope/a%20b/%C3%A9%2F"
    assert scope["query_string"] == "q=1&r=%20"
    assert scope["root_path"] == ""
    assert scope["server"] == ["127.0.0.1", server.port]
    assert scope["client"][0] == "127.0.0.1"
    assert scope["client"][1] != server.port
    names = [name for name, _ in scope["headers"]]
    assert all(name == name.lower() for name in names)
    assert [value for name, value in scope["headers"] if name == "x-test"] == ["1", "2"]
    assert names.count("host") == 1
    assert dict(scope["headers"])["host"] == f"127.0.0.1:{server.port}"
    assert scope["state"] == {"from_lifespan": ["shared"]}, "a request does not see the state of another one"
    assert set(scope["extensions"]) == {
        "http.response.trailers", "http.response.pathsend", "http.response.early_hint"
    }  # fmt: skip


def test_headers(client):
    response = client.get("/headers")
    assert response.headers["x-one"] == "1"
    assert response.headers.raw[[name.lower() for name, _ in response.headers.raw].index(b"x-two")][1] == b"caf\xe9"
    assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert response.headers["content-length"] == "1"
    assert "content-type" not in response.headers
    assert "content-type" not in client.get("/empty-parts").headers


@pytest.mark.parametrize(("query", "hints"), [("at-once", 1), ("later", 2)])
def test_early_hints_precede_the_response(server, query, hints):
    with socket.create_connection(("127.0.0.1", server.port), 10) as connection:
        connection.sendall(b"GET /early-hint?%s HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % query.encode())
        answer = connection.makefile("rb").read()
    heads = answer.split(b"\r\n\r\n")
    assert [head.split(b"\r\n")[0] for head in heads[:hints]] == [b"HTTP/1.1 103 Early Hints"] * hints
    assert heads[0].lower().count(b"link: </") == 2
    assert heads[hints].startswith(b"HTTP/1.1 200 ") and b"link" not in heads[hints].lower()
    assert heads[hints + 1] == b"hinted"


def test_wrong_early_hints(client):
    assert client.get("/early-hint-wrong").content == b"ValueError TypeError TypeError RuntimeError"


def test_pathsend(client):
    response = client.get("/pathsend")
    with open(__file__.replace("test_conformance", "conformance_app"), "rb") as file:
        content = file.read()
    assert response.content == content
    assert response.headers["content-length"] == str(len(content))


@pytest.mark.parametrize("status", [200, 404])
def test_a_response_to_head_announces_the_length_that_its_body_would_have(client, status):
    response = client.head(f"/announced/{status}")
    assert (response.status_code, response.content) == (status, b"")
    assert response.headers["content-length"] == "1234"
    assert client.get("/slow-start").content == b"slept"


def test_the_parts_of_a_response_to_head_are_dropped(client):
    assert client.head("/many-parts").content == b""
    assert wait_for_notes(client) == ["all"]
    assert len(client.get("/many-parts").content) == 1_000_003
    assert wait_for_notes(client) == ["all"]


def test_receive_after_the_last_part_is_a_disconnect(client):
    for method in ("GET", "HEAD"):
        client.request(method, "/receive-after-parts")
        assert wait_for_notes(client) == [{"type": "http.disconnect"}]


def test_each_receiver_gets_a_part(client, server):
    connection = server.connect()
    connection.sendall(b"POST /two-receivers HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    for part in (b"one", b"two"):
        client.get("/status/200")
        connection.sendall(b"3\r\n%s\r\n" % part)
    connection.sendall(b"0\r\n\r\n")
    answer = connection.recv(10_000)
    connection.close()
    assert json.loads(answer.rpartition(b"\r\n\r\n")[2]) == ["one", "two"]


def test_tasks_can_be_made_of_receive_and_send(client):
    def body():
        yield b"a"
        time.sleep(0.1)
        yield b"b"

    assert client.post("/tasks-of-messages", content=body()).text == "ab CancelledError True"


@pytest.mark.parametrize("path", ["/cancelled-receivers", "/two-at-once"])
def test_cancelled_receivers_lose_nothing(client, path):
    def body():
        for number in range(8):
            time.sleep(0.015)
            yield b"%d" % number

    assert client.post(path, content=body()).content == b"01234567"


def test_many_cancelled_receivers_cost_little(client):
    assert client.get("/many-receivers").content == b"end"
    assert wait_for_notes(client)[0] < 0.5


def test_a_receiver_ends_when_the_application_raises(client):
    assert client.get("/raises-with-a-receiver").status_code == 500
    assert wait_for_notes(client) == ["http.disconnect"]


def test_reading_a_message_may_send_another_one(client):
    assert client.get("/sends-while-read").content == b"inner"
    assert notes(client) == ["RuntimeError"]


@pytest.mark.parametrize("path", ["/raises-in-body", "/returns-in-body"])
def test_an_incomplete_body_is_seen_by_the_client(client, path):
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        client.get(path)
    assert client.get("/slow-start").content == b"slept"


def test_receive_after_the_response_is_a_disconnect(client):
    assert client.get("/receive-after-response").content == b"x"
    assert wait_for_notes(client) == [{"type": "http.disconnect"}]


def test_a_task_outlives_its_request(client):
    assert client.get("/background").content == b"begun"
    assert wait_for_notes(client) == ["later"]


def test_wrong_messages_behind_the_response(client):
    client.get("/wrong-two-ends")
    assert notes(client) == [[None, None, "RuntimeError"]]
    client.get("/wrong-two-starts")
    assert notes(client) == [[None, "RuntimeError", None]]


@pytest.mark.parametrize(
    ("path", "body", "note"),
    [
        ("/waits-for-disconnect", b"", "http.disconnect"),
        ("/waits-for-disconnect", b"body", "http.disconnect"),
        ("/disconnect-while-streaming", b"", "http.disconnect"),
        ("/stream-until-gone", b"", "OSError"),
    ],
)
@pytest.mark.parametrize("resets", [False, True])
def test_a_client_that_leaves_is_noticed(client, server, path, body, note, resets):
    connection = server.connect()
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body))
    if "stream" in path:
        assert connection.recv(10)
    # A reset destroys what the server has not read. The turn that answers this has read it.
    client.get("/status/200")
    if resets:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    assert wait_for_notes(client) == [note]


def test_send_waits_for_a_client_that_does_not_read(client, server):
    connection = server.connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
    connection.sendall(b"GET /fast-producer HTTP/1.1\r\nHost: a\r\n\r\n")
    sent = wait_for_notes(client)[0]
    connection.close()
    assert 0 < sent < 20_000_000, "the rest waits"


def test_a_body_arrives_while_it_is_sent(client, server):
    connection = server.connect()
    connection.sendall(b"POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(3):
        connection.sendall(b"5\r\nhello\r\n")
        client.get("/status/200")
    connection.sendall(b"0\r\n\r\n")
    answer = connection.recv(10_000)
    connection.close()
    counts = json.loads(answer.rpartition(b"\r\n\r\n")[2])
    assert counts["bytes"] == 15
    assert counts["events"] >= 3


def test_pipelined_requests_are_answered_in_order(server):
    connection = server.connect()
    connection.sendall(b"".join(b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in (b"slow-start", b"echo", b"parts")))
    received = b""
    while b"end\r\n0\r\n\r\n" not in received:
        received += connection.recv(10_000)
    connection.close()
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.index(b"slept") < received.index(b"0,")


def test_malformed_requests_do_not_reach_the_application(server):
    connection = server.connect()
    connection.sendall(b"GET /raises HTTP/1.1\r\nHost : a\r\n\r\n")
    assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    connection.close()
