"""WSGI applications (PEP 3333) in a pool of threads. With one thread, the native module calls them itself."""

import asyncio
import io
import queue
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import unquote_to_bytes

#: The requests that may wait for a thread, for each thread. Others get 503.
WAITING_PER_THREAD = 16

#: The parts of a response that may wait for the client.
PARTS_WAITING = 8


class FileWrapper:
    """`wsgi.file_wrapper`: yields the blocks of a file."""

    def __init__(self, file, block_size: int = 64 * 1024) -> None:
        self.file = file
        self.block_size = block_size
        if hasattr(file, "close"):
            self.close = file.close

    def __iter__(self):
        return self

    def __next__(self) -> bytes:
        block = self.file.read(self.block_size)
        if not block:
            raise StopIteration
        return block


def base_environ(server: tuple[str, int | None] | None, root: str, threads: int) -> dict:
    """Returns the values that the environments of all requests have."""
    host, port = server or ("localhost", None)
    return {
        # The path is text of Latin-1 with the bytes of UTF-8 (PEP 3333).
        "SCRIPT_NAME": root.encode().decode("latin-1"),
        "SERVER_NAME": host,
        "SERVER_PORT": str(port or ""),
        "wsgi.version": (1, 0),
        "wsgi.input_terminated": True,
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": threads > 1,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
        "wsgi.file_wrapper": FileWrapper,
    }


def environ_of(scope: dict, body, threads: int) -> dict:
    """Returns the environment of a request."""
    root = scope["root_path"]
    # The decoded path of the scope has lost bytes that are not UTF-8.
    path = unquote_to_bytes(scope["raw_path"][len(root.encode()) :])
    environ = base_environ(scope["server"], root, threads) | {
        "REQUEST_METHOD": scope["method"],
        "PATH_INFO": path.decode("latin-1"),
        "QUERY_STRING": scope["query_string"].decode("latin-1"),
        "SERVER_PROTOCOL": f"HTTP/{scope['http_version']}",
        "wsgi.url_scheme": scope["scheme"],
        "wsgi.input": body,
    }
    client = scope["client"]
    if client is not None:
        environ["REMOTE_ADDR"], environ["REMOTE_PORT"] = client[0], str(client[1])
    for name, value in scope["headers"]:
        # A field name with an underscore could pretend to be another one.
        if b"_" in name:
            continue
        key, text = name.decode("latin-1").upper().replace("-", "_"), value.decode("latin-1")
        if key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            environ[key] = text
        else:
            key = f"HTTP_{key}"
            joiner = "; " if key == "HTTP_COOKIE" else ","
            environ[key] = f"{environ[key]}{joiner}{text}" if key in environ else text
    return environ


class Wsgi:
    """An ASGI application that calls a WSGI application in a pool of threads."""

    def __init__(self, app: Callable, threads: int) -> None:
        self._app = app
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "highwire-wsgi")
        self._running = 0

    async def __call__(self, scope: dict, receive: Callable, send: Callable) -> None:
        if scope["type"] == "lifespan":
            return await self._lifespan(receive, send)
        if scope["type"] == "websocket":
            await receive()
            return await send({"type": "websocket.close"})
        if self._running >= self._threads * (1 + WAITING_PER_THREAD):
            headers = [(b"content-type", b"text/plain"), (b"retry-after", b"1")]
            await send({"type": "http.response.start", "status": 503, "headers": headers})
            return await send({"type": "http.response.body", "body": b"Service Unavailable"})
        self._running += 1
        try:
            body = await receive_body(receive)
            if body is not None:
                await self._in_pool(environ_of(scope, io.BytesIO(body), self._threads), send)
        finally:
            self._running -= 1
        return None

    async def _lifespan(self, receive: Callable, send: Callable) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._pool.shutdown(wait=False, cancel_futures=True)
        await send({"type": "lifespan.shutdown.complete"})

    async def _in_pool(self, environ: dict, send: Callable) -> None:
        """Calls the application in a thread, which waits while too many parts of its response wait for the client."""
        loop = asyncio.get_running_loop()
        messages: queue.Queue = queue.Queue(PARTS_WAITING)
        arrived = asyncio.Event()
        gone = False

        def put(message: dict | None) -> None:
            while not gone:
                try:
                    messages.put(message, timeout=1.0)
                    break
                except queue.Full:
                    continue
            else:
                raise OSError("the client has left")
            loop.call_soon_threadsafe(arrived.set)

        def work() -> None:
            try:
                Call(self._app, environ).run_in_thread(put)
            finally:
                if not gone:
                    put(None)

        future = loop.run_in_executor(self._pool, work)
        try:
            while True:
                try:
                    message = messages.get_nowait()
                except queue.Empty:
                    await arrived.wait()
                    arrived.clear()
                    continue
                if message is None:
                    break
                await send(message)
        finally:
            gone = True
            await future


async def receive_body(receive: Callable) -> bytes | None:
    """Returns the whole body of a request, or `None` if the client has left before."""
    message = await receive()
    if message["type"] == "http.request" and not message["more_body"]:
        return message["body"]
    parts = []
    while message["type"] == "http.request":
        parts.append(message["body"])
        if not message["more_body"]:
            return b"".join(parts)
        message = await receive()
    return None


class Call:
    """One call of a WSGI application."""

    def __init__(self, app: Callable, environ: dict) -> None:
        self._app = app
        self._environ = environ
        self._start: dict | None = None
        self._is_sent = False
        self._written: list[bytes] = []

    def _start_response(self, status: str, headers: list[tuple[str, str]], exc_info=None) -> Callable:
        if exc_info is not None:
            try:
                if self._is_sent:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                exc_info = None
        elif self._start is not None:
            raise RuntimeError("start_response was called before")
        fields = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
        self._start = {"type": "http.response.start", "status": int(status[:3]), "headers": fields}
        return self._written.append

    def _messages(self):
        """Yields the messages of the response. The last one says so."""
        result = self._app(self._environ, self._start_response)
        try:
            if isinstance(result, (list, tuple)) and len(result) == 1 and not self._written:
                # The whole body is known, so that the response has its length.
                yield from self._begin()
                yield {"type": "http.response.body", "body": result[0]}
                return
            for part in result:
                if part or self._written:
                    yield from self._begin()
                    part = b"".join(self._written) + part
                    self._written.clear()
                    yield {"type": "http.response.body", "body": part, "more_body": True}
            yield from self._begin()
            yield {"type": "http.response.body", "body": b"".join(self._written)}
        finally:
            if hasattr(result, "close"):
                result.close()

    def _begin(self):
        if self._start is None:
            raise RuntimeError("the application has not called start_response")
        if not self._is_sent:
            self._is_sent = True
            yield self._start

    def run_in_thread(self, put: Callable) -> None:
        """Calls the application in a thread of its own."""
        messages = self._messages()
        try:
            for message in messages:
                put(message)
        finally:
            messages.close()
