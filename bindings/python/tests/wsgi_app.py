"""WSGI applications of the tests."""

import threading
import time
from wsgiref.validate import validator


def body_of(environ):
    return environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))


class Closing:
    """An iterable whose `close` must be called."""

    closed = 0

    def __init__(self, parts):
        self.parts = iter(parts)

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.parts)

    def close(self):
        Closing.closed += 1


def plain(environ, start_response):
    path = environ["PATH_INFO"]
    headers = [("Content-Type", "text/plain"), ("X-Thread", threading.current_thread().name.split("_")[0])]
    if path == "/environ":
        names = ("REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "CONTENT_TYPE", "CONTENT_LENGTH",
                 "SERVER_NAME", "SERVER_PROTOCOL", "HTTP_X_TEST", "HTTP_COOKIE", "wsgi.url_scheme")  # fmt: skip
        start_response("200 OK", headers)
        return [repr({name: environ.get(name) for name in names}).encode()]
    if path == "/echo":
        start_response("200 OK", headers)
        return [body_of(environ)]
    if path == "/parts":
        start_response("200 OK", headers)
        return Closing([b"one,", b"", b"two,", b"three"])
    if path == "/closed":
        start_response("200 OK", headers)
        return [str(Closing.closed).encode()]
    if path == "/write":
        write = start_response("200 OK", headers)
        write(b"written,")
        return [b"returned"]
    if path == "/status":
        start_response("418 I'm a teapot", headers)
        return [b""]
    if path == "/raises":
        raise ValueError("on purpose")
    if path == "/raises-in-parts":
        start_response("200 OK", headers)

        def parts():
            yield b"part"
            raise ValueError("on purpose")

        return parts()
    if path == "/no-start":
        return [b"x"]
    if path == "/exc-info":
        try:
            start_response("200 OK", headers)
            raise ValueError("on purpose")
        except ValueError:
            import sys

            start_response("500 Sorry", headers, sys.exc_info())
            return [b"sorry"]
    if path == "/file":
        start_response("200 OK", headers)
        return environ["wsgi.file_wrapper"](open(__file__, "rb"))
    if path == "/slow":
        time.sleep(0.3)
        start_response("200 OK", headers)
        return [b"slow"]
    if path == "/large":
        start_response("200 OK", headers)
        return (b"x" * 50_000 for _ in range(200))
    start_response("404 Not Found", headers)
    return [b"not found"]


app = plain
validated = validator(plain)
