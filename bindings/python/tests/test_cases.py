"""Cases of the ASGI specification that any server can be asked, as data. `compare.py` asks several and makes a table.

Where the specification leaves something open, such as the type of an exception or the text of an error, the cases do, too.
"""

import json
import re
import socket
import time

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

SIZES = (0, 1, 100, 4096, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 1_000_000)


@pytest.fixture(scope="session")
def client(any_server):
    with httpx.Client(base_url=any_server.url, timeout=10, trust_env=False) as client:
        yield client


@pytest.fixture(scope="session")
def url(any_server):
    return any_server.url.replace("http", "ws")


@pytest.fixture(autouse=True)
def no_notes(client):
    """Forgets what an earlier case has noted."""
    client.get("/notes")


def notes(client, seconds: float = 3.0) -> list:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found = client.get("/notes").json()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("the handler has not ended")


def raw(server, request: bytes) -> tuple[int, dict[str, str], bytes]:
    """Sends bytes, and returns the status, the fields and the body of the response, which ends with the connection."""
    with server.connect() as connection:
        connection.settimeout(5)
        connection.sendall(request)
        received = b""
        while part := connection.recv(65_536):
            received += part
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:])
    if fields.get("transfer-encoding") == "chunked":
        parts = []
        while not body.startswith(b"0\r\n"):
            size, _, body = body.partition(b"\r\n")
            parts.append(body[: int(size, 16)])
            body = body[int(size, 16) + 2 :]
        body = b"".join(parts)
    return int(lines[0].split()[1]), fields, body


#: Target, path, raw path, query.
TARGETS = [
    (b"/scope", "/scope", "/scope", ""),
    (b"/scope/", "/scope/", "/scope/", ""),
    (b"/scope?", "/scope", "/scope", ""),
    (b"/scope?a=b&c=%20d", "/scope", "/scope", "a=b&c=%20d"),
    (b"/scope?a=b?c=d", "/scope", "/scope", "a=b?c=d"),
    (b"/scope?%zz", "/scope", "/scope", "%zz"),
    (b"/scope?q=%C3%A9", "/scope", "/scope", "q=%C3%A9"),
    (b"/scope/a%20b", "/scope/a b", "/scope/a%20b", ""),
    (b"/scope/a+b", "/scope/a+b", "/scope/a+b", ""),
    (b"/scope/%C3%A9", "/scope/\u00e9", "/scope/%C3%A9", ""),
    (b"/scope/%E2%82%AC", "/scope/\u20ac", "/scope/%E2%82%AC", ""),
    (b"/scope/%F0%9F%98%80", "/scope/\U0001f600", "/scope/%F0%9F%98%80", ""),
    (b"/scope/a%2Fb", "/scope/a/b", "/scope/a%2Fb", ""),
    (b"/scope/%2e%2e", "/scope/..", "/scope/%2e%2e", ""),
    (b"/scope/a;b=c", "/scope/a;b=c", "/scope/a;b=c", ""),
    (b"/scope/a:b@c", "/scope/a:b@c", "/scope/a:b@c", ""),
    (b"/scope/~-._", "/scope/~-._", "/scope/~-._", ""),
    (b"/scope//a", "/scope//a", "/scope//a", ""),
    (b"/scope/%25", "/scope/%", "/scope/%25", ""),
    (b"/scope/" + b"x" * 2000, "/scope/" + "x" * 2000, "/scope/" + "x" * 2000, ""),
    (b"http://a/scope/b?c", "/scope/b", "/scope/b", "c"),
]


@pytest.mark.parametrize(("target", "path", "raw_path", "query"), TARGETS, ids=lambda value: str(value)[:30])
def test_target(any_server, target, path, raw_path, query):
    request = b"GET " + target + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    status, _, body = raw(any_server, request)
    assert status == 200
    scope = json.loads(body)
    assert (scope["path"], scope["query_string"]) == (path, query)
    assert scope.get("raw_path") in (raw_path, None), "it is optional"


#: Keys of the scope, and what must be true of their values.
KEYS = {
    "type": lambda value: value == "http",
    "asgi-version": lambda value: True,
    "http_version": lambda value: value == "1.1",
    "method": lambda value: value == "GET",
    "scheme": lambda value: value == "http",
    "root_path": lambda value: value == "",
    "client": lambda value: value[0] == "127.0.0.1" and value[1] > 0,
    "server": lambda value: value[0] == "127.0.0.1" and value[1] > 0,
    "headers": lambda value: all(len(pair) == 2 for pair in value),
    "state": lambda value: value == {"from_lifespan": ["shared"]},
    "extensions": lambda value: value is None or isinstance(value, dict),
}


@pytest.mark.parametrize("key", KEYS)
def test_scope(client, key):
    scope = client.get("/scope").json()
    scope["asgi-version"] = re.match(r"[23]\.[0-9]", scope["asgi"]["version"])[0]
    # Extensions are optional.
    assert KEYS[key](scope.get(key) if key == "extensions" else scope[key])


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "X-OWN"])
def test_method(client, method):
    assert client.request(method, "/scope").json()["method"] == method


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_version(any_server, version):
    request = f"GET /scope HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert json.loads(raw(any_server, request.encode())[2])["http_version"] == version


#: Field lines, and the pairs that the application must see.
FIELDS = [
    (b"X-Test: value", [["x-test", "value"]]),
    (b"X-TEST: Value", [["x-test", "Value"]]),
    (b"x-test:value", [["x-test", "value"]]),
    (b"x-test:   value  ", [["x-test", "value"]]),
    (b"x-test:", [["x-test", ""]]),
    (b"x-test: a\r\nx-test: b", [["x-test", "a"], ["x-test", "b"]]),
    (b"x-test: a, b", [["x-test", "a, b"]]),
    (b"x-test: caf\xe9", [["x-test", "caf\xe9"]]),
    (b"x-test: caf\xc3\xa9", [["x-test", "caf\xc3\xa9"]]),
    (b"x-test: a\tb", [["x-test", "a\tb"]]),
    (b"x-test: " + b"v" * 4000, [["x-test", "v" * 4000]]),
    (b"x-test-" + b"n" * 200 + b": v", [["x-test-" + "n" * 200, "v"]]),
    (b"\r\n".join(b"x-test-%d: %d" % (n, n) for n in range(60)), [[f"x-test-{n}", str(n)] for n in range(60)]),
    (b"Cookie: a=1\r\nx-test: c", [["x-test", "c"]]),
    (b"x-test!#$%&'*+.^`|~: v", [["x-test!#$%&'*+.^`|~", "v"]]),
]


@pytest.mark.parametrize(("lines", "pairs"), FIELDS, ids=lambda value: str(value)[:30])
def test_request_field(any_server, lines, pairs):
    request = b"GET /scope HTTP/1.1\r\nHost: a\r\nConnection: close\r\n" + lines + b"\r\n\r\n"
    headers = json.loads(raw(any_server, request)[2])["headers"]
    assert [pair for pair in headers if pair[0].startswith("x-test")] == pairs
    assert ["host", "a"] in headers


@pytest.mark.parametrize("is_chunked", [False, True], ids=["length", "chunked"])
@pytest.mark.parametrize("size", SIZES)
def test_request_body(client, size, is_chunked):
    content = iter([b"x" * size]) if is_chunked else b"x" * size
    answer = client.post("/request-length", content=content).json()
    assert answer == {"bytes": size, "last": True, "others": True}


@pytest.mark.parametrize("size", SIZES)
def test_response_body(client, size):
    response = client.get(f"/bytes/{size}")
    assert response.content == b"b" * size


@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, 1), (10, 0), (10, 1), (10, 1000), (3, 65_536), (100, 10_000), (1, 1_000_000)])
def test_response_parts(client, count, size):
    assert client.get(f"/parts-of-size/{count}/{size}").content == b"p" * count * size


STATUSES = (200, 201, 202, 203, 204, 206, 207, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405, 409, 410, 418,
            421, 422, 429, 451, 500, 501, 502, 503, 504, 599)  # fmt: skip


@pytest.mark.parametrize("status", STATUSES)
def test_status(client, status):
    response = client.get(f"/status/{status}")
    assert (response.status_code, response.content) == (status, b"")
    assert client.get("/bytes/1").content == b"b", "the connection can be used again"


@pytest.mark.parametrize("name", ["x-one", "x-two", "set-cookie"])
def test_response_field(client, name):
    raw_fields = client.get("/headers").headers.raw
    values = [value for known, value in raw_fields if known.lower().decode() == name]
    assert values == {"x-one": [b"1"], "x-two": [b"caf\xe9"], "set-cookie": [b"a=1", b"b=2"]}[name]


#: Path, and the length that the application announces.
HEADS = [("/announced/200", "1234"), ("/announced/404", "1234"), ("/parts-of-length", "6")]


@pytest.mark.parametrize(("path", "length"), HEADS)
def test_head(any_server, path, length):
    request = b"HEAD " + path.encode() + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    status, fields, body = raw(any_server, request)
    assert (status, body) == (404 if path.endswith("404") else 200, b"")
    assert fields.get("content-length") == length


#: Paths of handlers that check something of their own, and what they respond.
BEHAVIOURS = [
    ("GET", "/first-event", {"type": "http.request", "body": "", "more_body": False}),
    ("GET", "/header-tuple", None),
    ("GET", "/no-headers", None),
    ("GET", "/parts", b"0,1,2,3,4,end"),
    ("GET", "/empty-parts", b"x"),
    ("GET", "/parts-of-length", b"abcdef"),
    ("GET", "/current-task", True),
    ("GET", "/timeout", b"timed out"),
    ("GET", "/timeout-of-receive", b"timed out"),
    ("GET", "/task-group", [0, 1, 2]),
    ("GET", "/executor", 6),
    ("GET", "/context", ["unset", "polluted"]),
    ("GET", "/context", ["unset", "polluted"]),
    ("GET", "/subprocess", b"hello\n"),
    ("GET", "/open-connection", b"slept"),
    ("POST", "/tasks-of-messages", b"ab CancelledError True"),
]


@pytest.mark.parametrize(("method", "path", "expected"), BEHAVIOURS, ids=lambda value: str(value)[:30])
def test_behaviour(client, method, path, expected):
    response = client.request(method, path, content=b"ab" if method == "POST" else b"")
    assert response.is_success
    if isinstance(expected, bytes):
        assert response.content == expected
    elif expected is not None:
        assert response.json() == expected


@pytest.mark.parametrize("path", ["/raises", "/raises-later", "/raises-after-start", "/returns", "/cancels"])
def test_failure_before_the_response_is_a_500(client, path):
    assert client.get(path).status_code == 500
    assert client.get("/bytes/1").content == b"b"


@pytest.mark.parametrize("path", ["/raises-in-body", "/returns-in-body"])
def test_failure_in_the_body_is_seen_by_the_client(client, path):
    with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
        client.get(path)


def test_failure_after_the_response_is_not_seen(client):
    assert client.get("/raises-after-response").content == b"complete"


WRONG = ["unknown", "no-type", "body-first", "no-status", "status-text", "status-100", "status-1000", "header-text", "header-name",
         "header-value", "header-shape", "websocket"]  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_message_raises(client, name):
    client.get(f"/wrong-{name}")
    assert all(notes(client)[0]), "send must raise"


@pytest.mark.parametrize(("name", "at"), [("two-starts", 1), ("two-ends", 2), ("start-behind", 2), ("body-text", 1), ("trailers", 1)])
def test_a_message_at_the_wrong_time_raises(client, name, at):
    client.get(f"/wrong-{name}")
    assert notes(client)[0][at]


@pytest.mark.parametrize("resets", [False, True], ids=["end", "reset"])
@pytest.mark.parametrize(("path", "note"), [("/waits-for-disconnect", "http.disconnect"), ("/disconnect-while-streaming", "http.disconnect"),
                                            ("/stream-until-gone", "OSError")])  # fmt: skip
def test_a_client_that_leaves(client, any_server, path, note, resets):
    connection = any_server.connect()
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n" % path.encode())
    if "stream" in path:
        connection.recv(10)
    client.get("/bytes/1")
    if resets:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()
    assert notes(client) == [note]


@pytest.mark.parametrize("path", ["/receive-after-response", "/receive-after-parts"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_receive_after_the_response(client, method, path):
    client.request(method, path)
    assert notes(client)[0]["type"] == "http.disconnect"


def test_parts_of_a_response_to_head_are_dropped(client):
    assert client.head("/many-parts").content == b""
    assert notes(client) == ["all"]


def test_send_waits_for_a_client_that_does_not_read(client, any_server):
    connection = any_server.connect()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
    connection.sendall(b"GET /fast-producer HTTP/1.1\r\nHost: a\r\n\r\n")
    sent = notes(client, 10)[0]
    connection.close()
    assert 0 < sent < 50_000_000


def test_a_body_arrives_while_it_is_sent(client, any_server):
    with any_server.connect() as connection:
        connection.sendall(b"POST /count HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(3):
            connection.sendall(b"5\r\nhello\r\n")
            client.get("/slow-start")
        connection.sendall(b"0\r\n\r\n")
        received = b""
        while part := connection.recv(10_000):
            received += part
    counts = json.loads(received[received.index(b"{") : received.rindex(b"}") + 1])
    assert counts["bytes"] == 15
    assert counts["events"] >= 3


def test_expect_continue(any_server):
    with any_server.connect() as connection:
        connection.settimeout(5)
        head = b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n"
        connection.sendall(head)
        assert connection.recv(1000).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b"ok")
        received = b""
        while b"ok" not in received.partition(b"\r\n\r\n")[2]:
            part = connection.recv(1000)
            assert part
            received += part


def test_pipelined_requests(any_server):
    requests = [b"GET /%s HTTP/1.1\r\nHost: a\r\n\r\n" % path for path in (b"slow-start", b"bytes/1", b"parts")]
    with any_server.connect() as connection:
        connection.settimeout(5)
        connection.sendall(b"".join(requests))
        received = b""
        while b"end" not in received:
            part = connection.recv(10_000)
            assert part
            received += part
    assert received.count(b"HTTP/1.1 200 OK") == 3
    assert received.index(b"slept") < received.index(b"0,")


@pytest.mark.parametrize("line", [b"Host : a", b"Content-Length: 1\r\nContent-Length: 2", b"Content-Length: x", b"Transfer-Encoding: chunked, x",
                                  b"\0: a", b"a: b\0c"])  # fmt: skip
def test_malformed_requests_do_not_reach_the_application(any_server, client, line):
    request = b"POST /stream-until-gone HTTP/1.1\r\nHost: a\r\n" + line + b"\r\n\r\n"
    with any_server.connect() as connection:
        connection.settimeout(5)
        connection.sendall(request)
        assert connection.recv(100).split(b" ")[1] == b"400"


MESSAGES = [kind * size for size in (0, 1, 125, 126, 65_535, 65_536, 1_000_000) for kind in ("t", b"b")] + ["\u00e9\u20ac\U0001f600" * 100]


@pytest.mark.parametrize("compression", [None, "deflate"], ids=["plain", "deflate"])
@pytest.mark.parametrize("message", MESSAGES, ids=lambda value: f"{type(value).__name__}-{len(value)}")
def test_websocket_message(url, message, compression):
    with connect(url + "/echo", compression=compression, max_size=None, ping_interval=None) as websocket:
        websocket.send(message)
        assert websocket.recv(5) == message


@pytest.mark.parametrize("code", [1000, 1001, 1003, 1008, 1011, 3000, 4000, 4999])
def test_websocket_close_of_the_client(url, client, code):
    with connect(url + "/echo", ping_interval=None) as websocket:
        websocket.close(code, "why")
    # The reason came with a later version of the specification.
    assert notes(client)[0] in ({"code": code, "reason": "why"}, {"code": code, "reason": None})


def test_websocket_close_of_the_application(url):
    with connect(url + "/closes", ping_interval=None) as websocket, pytest.raises(ConnectionClosed) as caught:
        websocket.recv(5)
    assert caught.value.rcvd is not None
    assert (caught.value.rcvd.code, caught.value.rcvd.reason) == (4000, "enough")


@pytest.mark.parametrize("path", ["/returns-open", "/raises-open"])
def test_websocket_whose_application_ends_is_closed(url, path):
    with connect(url + path, ping_interval=None) as websocket, pytest.raises(ConnectionClosed):
        websocket.recv(5)


@pytest.mark.parametrize(("path", "statuses"), [("/deny", [403]), ("/denial", [401]), ("/raises", [500]), ("/returns", [500, 403])])
def test_websocket_refused(url, path, statuses):
    with pytest.raises(InvalidStatus) as caught, connect(url + path, ping_interval=None):
        pass
    assert caught.value.response.status_code in statuses


@pytest.mark.parametrize("offered", [None, ["one"], ["one", "two"]], ids=str)
def test_websocket_subprotocol(url, offered):
    with connect(url + "/scope", subprotocols=offered, ping_interval=None) as websocket:
        assert websocket.subprotocol == (offered[-1] if offered else None)
        assert json.loads(websocket.recv(5))["subprotocols"] == (offered or [])


@pytest.mark.parametrize("key", ["type", "scheme", "path", "query_string", "root_path", "http_version", "client", "server"])
def test_websocket_scope(url, key):
    expected = {"type": "websocket", "scheme": "ws", "path": "/scope", "query_string": "a=b", "root_path": "", "http_version": "1.1"}
    with connect(url + "/scope?a=b", ping_interval=None) as websocket:
        value = json.loads(websocket.recv(5))[key]
    assert value == expected.get(key, value)
    assert value is not None


def test_websocket_field_of_accept(url):
    with connect(url + "/echo", ping_interval=None) as websocket:
        assert websocket.response.headers["x-accept"] == "1"


def test_websocket_that_breaks(url, client):
    websocket = connect(url + "/echo", ping_interval=None, legacy=True)
    websocket.socket.close()
    assert notes(client)[0]["code"] == 1006


def test_websocket_fragments_and_pings(url):
    with connect(url + "/echo", ping_interval=None) as websocket:
        websocket.send([b"in ", b"fragments"])
        assert websocket.recv(5) == b"in fragments"
        assert websocket.ping().wait(5)


def test_two_senders_end_when_the_client_goes_away(url, client):
    websocket = connect(url + "/two-senders", max_size=None, compression=None, ping_interval=None, legacy=True)
    websocket.socket.close()
    assert len(notes(client, 10)[0]) == 2
    assert client.get("/slow-start").content == b"slept"
