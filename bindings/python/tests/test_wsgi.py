"""WSGI applications, in the event loop's thread and in a pool."""

import ast
import concurrent.futures
from pathlib import Path

import httpx
import pytest

CASES = [
    ("GET", "/status", b"", 418, b""),
    ("POST", "/echo", b"hello", 200, b"hello"),
    ("POST", "/echo", b"x" * 300_000, 200, b"x" * 300_000),
    ("GET", "/parts", b"", 200, b"one,two,three"),
    ("HEAD", "/parts", b"", 200, b""),
    ("GET", "/write", b"", 200, b"written,returned"),
    ("GET", "/raises", b"", 500, None),
    ("GET", "/no-start", b"", 500, None),
    ("GET", "/exc-info", b"", 500, b"sorry"),
    ("GET", "/file", b"", 200, (Path(__file__).parent / "wsgi_app.py").read_bytes()),
    ("GET", "/large", b"", 200, b"x" * 10_000_000),
    ("GET", "/nowhere", b"", 404, b"not found"),
]


@pytest.fixture(params=["1", "4"])
def server(start, request):
    return start("wsgi_app:app", "--threads", request.param)


def test_cases(server):
    with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
        for method, path, body, status, expected in CASES:
            response = client.request(method, path, content=body)
            assert response.status_code == status, path
            assert expected is None or response.content == expected, path
        with pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)):
            client.get("/raises-in-parts")
        assert int(client.get("/closed").content) == 2


def test_the_environment(server):
    headers = {"X-Test": "a", "Cookie": "b=c", "X_Test": "spoofed", "Content-Type": "text/x"}
    response = httpx.post(server.url + "/environ?q=%20", headers=headers, content=b"abc", trust_env=False)
    assert ast.literal_eval(response.text) == {
        "REQUEST_METHOD": "POST", "SCRIPT_NAME": "", "PATH_INFO": "/environ", "QUERY_STRING": "q=%20",
        "CONTENT_TYPE": "text/x", "CONTENT_LENGTH": "3", "SERVER_NAME": "127.0.0.1", "SERVER_PROTOCOL": "HTTP/1.1",
        "HTTP_X_TEST": "a", "HTTP_COOKIE": "b=c", "wsgi.url_scheme": "http",
    }  # fmt: skip


def test_the_validator_of_the_standard_library(start):
    server = start("wsgi_app:validated", "--interface", "wsgi")
    for path in ("/parts", "/status", "/environ"):
        assert httpx.get(server.url + path, trust_env=False).status_code in (200, 418)
    assert httpx.post(server.url + "/echo", content=b"abc", trust_env=False).content == b"abc"
    assert "AssertionError" not in server.log


def test_threads_work_at_the_same_time_and_their_queue_is_bounded(start):
    server = start("wsgi_app:app", "--threads", "4")
    # With a bound on idle connections, or with their expiry, the pool of httpcore closes a
    # connection that another thread has just been given, and that thread reads from a closed
    # descriptor. So this pool closes none.
    limits = httpx.Limits(
        max_connections=100, max_keepalive_connections=100, keepalive_expiry=None
    )
    with (
        httpx.Client(
            base_url=server.url, trust_env=False, timeout=30, limits=limits
        ) as client,
        concurrent.futures.ThreadPoolExecutor(100) as pool,
    ):
        statuses = list(pool.map(lambda _: client.get("/slow").status_code, range(100)))
        assert statuses.count(503) > 0
        assert statuses.count(200) >= 68
        assert client.get("/environ").headers["x-thread"] == "highwire-wsgi"


def test_a_client_that_leaves_does_not_hold_a_thread(start):
    server = start("wsgi_app:app", "--threads", "2")
    for _ in range(4):
        connection = server.connect()
        connection.sendall(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(100)
        connection.close()
    assert httpx.get(server.url + "/parts", trust_env=False, timeout=20).content == b"one,two,three"
