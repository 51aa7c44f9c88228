"""The server: an application, the event loop, and the worker in it."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from ._highwire import Worker
from ._importing import import_application, interface_of
from ._lifespan import Lifespan, RsgiLifespan
from ._options import static_route
from ._selector import WorkerReader, WorkerSelector
from ._wsgi import Wsgi, base_environ

logger = logging.getLogger("highwire.error")
access_logger = logging.getLogger("highwire.access")

#: The line of a request in the access log. The record's `args` has these values, and others: see docs/python.md.
ACCESS_FORMAT = '%(peer)s - "%(method)s %(target)s %(protocol)s" %(status)d %(bytes)d %(microseconds)d'

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)

#: The most bytes of a body for a WSGI application, unless `limit_body` says otherwise.
MOST_WSGI_BODY = 1 << 30


def log_exception(error: BaseException | None, text: str) -> None:
    """Logs what an application has done wrong, with the traceback of its exception."""
    if error is None:
        logger.error(text)
    else:
        logger.error(text, exc_info=(type(error), error, error.__traceback__))


def log_event(level: int, event: str | dict) -> None:
    """Logs an event of the engine: a text, or the values of a line of the access log."""
    if isinstance(event, str):
        logger.log(level, "%s", event)
    elif "method" in event:
        access_logger.info(ACCESS_FORMAT + (" (%(ended)s)" if "ended" in event else ""), event)
    else:
        # Bytes that were no request.
        access_logger.info("%(peer)s - (%(refused)s)", event)


@dataclass
class Config:
    """The settings of a server.

    app: the application.
    interface: `"asgi"`, `"wsgi"`, `"rsgi"` or `"auto"`, which looks at how the application can be called.
    bind: the addresses: `HOST:PORT`, `[IPV6]:PORT`, `unix:PATH` or `fd:NUMBER`.
    lifespan: `"auto"`, `"on"` or `"off"`; `"auto"` goes on without the lifespan if the application does not know it.
    root_path: the path at which a proxy has mounted the application.
    loop: `"auto"`, `"asyncio"` or `"uvloop"`, the event loop of `Server.run`. The worker is the wait of asyncio's, which is
        faster than uvloop here.
    engine: `"auto"`, `"uring"` or `"readiness"`, the interface to the kernel.
    graceful_timeout: the seconds that requests may take after a signal to stop; the rest is cut then.
    http: `"auto"`, `"1"` or `"2"`, the versions of HTTP.
    threads: the threads that call a WSGI application; with 1, it is called in the event loop's own thread.
    ssl_certfile, ssl_keyfile: the files of a certificate chain and of its key (PEM). With them, all addresses speak TLS.
    ssl_ca_certs: the file of the authorities (PEM) that may issue the certificates of clients.
    ssl_cert_reqs: `"none"`, `"optional"` or `"required"`: whether clients must have one; `"required"` with `ssl_ca_certs`.
    backlog: the connections that may wait to be accepted.
    limit_connections: the most connections; `None` means as many as descriptors and memory allow.
    limit_requests: the number of requests after which `on_limit` of `Server.run` is called.
    limit_body: the most bytes of a request's body.
    keep_alive: the seconds after which an idle connection is closed.
    request_timeout: the seconds after which a request without a response gets 503; `None` means no limit.
    ws_max_size: the most bytes of a received WebSocket message.
    ws_deflate: compress WebSocket messages for clients that offer it.
    access_log: log each request with the logger `highwire.access`.
    forwarded_allow_ips: the proxies whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed: addresses and networks,
        separated by commas, or `"*"` for all; `None` for none. Clients on unix sockets are believed, too.
    static_mounts: folders whose files the server sends itself, by the paths before which they are mounted, such as
        `{"/static": "public"}`. Hidden files are not sent.
    static_expires: the seconds for which clients may keep these files.
    server_name: the value of the field `Server`; `None` means no such field.
    """

    app: Callable
    bind: list[str] = field(default_factory=lambda: ["127.0.0.1:8000"])
    lifespan: str = "auto"
    root_path: str = ""
    loop: str = "auto"
    engine: str = "auto"
    graceful_timeout: float = 30.0
    interface: str = "auto"
    http: str = "auto"
    threads: int = 1
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_ca_certs: str | None = None
    ssl_cert_reqs: str | None = None
    backlog: int | None = None
    limit_connections: int | None = None
    limit_requests: int | None = None
    limit_body: int | None = None
    keep_alive: float | None = None
    request_timeout: float | None = None
    ws_max_size: int | None = None
    ws_deflate: bool = True
    access_log: bool = False
    forwarded_allow_ips: str | None = "127.0.0.1,::1"
    static_mounts: dict[str, str] = field(default_factory=dict)
    static_expires: int = 86_400
    server_name: str | None = "highwire"


#: The settings that the native worker takes as they are.
NATIVE = (
    "engine", "root_path", "http", "ssl_certfile", "ssl_keyfile", "ssl_ca_certs", "ssl_cert_reqs", "backlog", "limit_connections", "limit_body",
    "keep_alive", "graceful_timeout", "request_timeout", "ws_max_size", "ws_deflate", "server_name", "access_log",
    "forwarded_allow_ips", "static_mounts", "static_expires",
)  # fmt: skip


class Server:
    """Serves one application in one event loop of its own."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.addresses: list[str] = []
        self._worker: Worker | None = None
        self._stop: asyncio.Event | None = None
        self._signals = 0
        self._wsgi: dict | None = None
        self._rsgi: RsgiLifespan | None = None
        self._is_supervised = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        #: The moment at which the end is no longer waited for.
        self._until: float | None = None
        self._on_start: Callable | None = None
        self._on_limit: Callable | None = None
        self._on_stop: Callable[[bool], None] | None = None

    def run(
        self,
        on_start: Callable | None = None,
        on_limit: Callable | None = None,
        is_supervised: bool = False,
        on_stop: Callable[[bool], None] | None = None,
    ) -> None:
        """Serves until a signal to stop comes, or until `stop` is called.

        on_start: called when the server listens.
        on_limit: called once when `limit_requests` is reached.
        on_stop: called when the server begins to stop, and with true when what is left is cut.
        is_supervised: another process sends the signals: SIGTERM to stop, and SIGQUIT to cut what is left.
        """
        self._on_start, self._on_limit, self._is_supervised, self._on_stop = on_start, on_limit, is_supervised, on_stop
        if self.config.threads == 1 and interface_of(self.config.app, self.config.interface) == "wsgi":
            return self._run_wsgi()
        if self.config.loop not in ("auto", "asyncio", "uvloop"):
            raise ValueError(f"loop must be 'auto', 'asyncio' or 'uvloop', not {self.config.loop!r}")
        selector = WorkerSelector()
        factory: Callable = lambda: asyncio.SelectorEventLoop(selector)  # noqa: E731
        if self.config.loop == "uvloop":
            try:
                import uvloop
            except ImportError:
                raise ValueError("the loop 'uvloop' needs the package uvloop") from None
            factory = uvloop.new_event_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            loop = runner.get_loop()
            wait = WorkerReader(loop) if self.config.loop == "uvloop" else selector
            if interface_of(self.config.app, self.config.interface) == "rsgi":
                # The application may run the loop until something is done.
                self._rsgi = RsgiLifespan(self.config.app)
                self._rsgi.begin(loop)
            runner.run(self._serve(wait, has_signals=True))
            if self._rsgi is not None:
                self._rsgi.end(loop)

    async def serve(self, on_start: Callable | None = None, on_limit: Callable | None = None) -> None:
        """Serves in the event loop that runs, until `stop` is called. If the task is cancelled, it stops as for `stop` and then
        raises CancelledError. The signals of the process are the caller's. `run` takes less time for each request, because its loop
        and the worker wait together.

        on_start, on_limit: as for `run`.
        """
        self._on_start, self._on_limit = on_start, on_limit
        await self._serve(WorkerReader(asyncio.get_running_loop()), has_signals=False)

    @property
    def should_exit(self) -> bool:
        """True if the server stops. Setting it is `stop`."""
        return self._signals > 0

    @should_exit.setter
    def should_exit(self, value: bool) -> None:
        if value:
            self.stop()

    def stop(self) -> None:
        """Stops: no new connections, and the requests in progress may finish. Called again, it cuts them. Any thread may call it."""
        if self._loop is not None and threading.get_ident() != self._thread:
            self._loop.call_soon_threadsafe(self._stop_here)
        else:
            self._stop_here()

    def _stop_here(self) -> None:
        self._signals += 1
        if self._stop is not None:
            self._stop.set()
        if self._on_stop is not None:
            self._on_stop(self._signals > 1)

    def _handlers(self) -> dict[int, Callable[[], None]]:
        """Returns what is done for each signal."""
        if not self._is_supervised:
            return {number: self._stop_here for number in STOP_SIGNALS}
        # The terminal and service managers send a signal to all processes, and the supervisor sends one for each of these. Only
        # SIGQUIT, which the supervisor sends, does not wait.
        return {
            signal.SIGINT: lambda: None,
            signal.SIGTERM: lambda: None if self._signals else self._stop_here(),
            signal.SIGQUIT: lambda: [self._stop_here() for _ in range(2)] and None,
        }

    async def _serve(self, wait: WorkerReader | WorkerSelector, has_signals: bool) -> None:
        loop = self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._stop = asyncio.Event()
        app, interface = self.config.app, interface_of(self.config.app, self.config.interface)
        if interface == "wsgi":
            app = Wsgi(app, self.config.threads)
        lifespan = self._rsgi or (RsgiLifespan(app) if interface == "rsgi" else Lifespan(app, self.config.lifespan))
        with contextlib.ExitStack() as stack:
            for number, handler in self._handlers().items() if has_signals else ():
                loop.add_signal_handler(number, handler)
                stack.callback(loop.remove_signal_handler, number)
            if not await self._start_up(lifespan):
                return
            cancelled = limit = None
            try:
                self._worker = self._make_worker(loop, app, lifespan.state, interface)
                wait.attach(self._worker)
                logger.info("listening on %s", ", ".join(self.addresses))
                if self._on_start is not None:
                    self._on_start()
                if self.config.limit_requests is not None:
                    limit = asyncio.create_task(self._watch_limit())
                try:
                    await self._stop.wait()
                except asyncio.CancelledError as error:
                    cancelled = error
                await self._drain()
            finally:
                if limit is not None:
                    limit.cancel()
                wait.detach()
                self._worker = None
                await self._end(lifespan)
            if cancelled is not None:
                raise cancelled

    async def _start_up(self, lifespan: Lifespan | RsgiLifespan) -> bool:
        """Starts the application. Returns false if a signal to stop has come meanwhile."""
        assert self._stop is not None
        starting, stopped = asyncio.create_task(lifespan.startup()), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not starting.done():
                # It may take long, or hang.
                lifespan.cancel()
                starting.cancel()
        if not starting.done():
            logger.info("stopped before the application has started")
            return False
        starting.result()
        if self._signals:
            await self._end(lifespan)
            return False
        return True

    async def _end(self, lifespan: Lifespan | RsgiLifespan) -> None:
        """Ends the application, within what is left of the time for the end, and at least a second."""
        left = self._until - asyncio.get_running_loop().time() if self._until is not None else self.config.graceful_timeout
        ending = asyncio.create_task(lifespan.shutdown(max(left, 1.0)))
        try:
            while not ending.done():
                await asyncio.wait((ending,), timeout=0.05)
                if self._signals > 1 and not ending.done():
                    logger.warning("stopping: the application's shutdown is cut")
                    break
        finally:
            if not ending.done():
                lifespan.cancel()
                ending.cancel()
        if ending.done():
            ending.result()

    def _run_wsgi(self) -> None:
        """Runs the worker without an event loop, because a WSGI application may start one itself. Django refuses to use its
        database in a thread whose event loop runs.
        """
        limit = self.config.limit_requests
        loop = asyncio.new_event_loop()
        self._wsgi = base_environ(server_of(self.config.bind[0]), self.config.root_path, 1)
        worker = self._worker = self._make_worker(loop, self.config.app, None, "wsgi")
        handlers = self._handlers()
        before = {number: signal.signal(number, lambda number, _: handlers[number]()) for number in handlers}
        try:
            logger.info("listening on %s", ", ".join(self.addresses))
            if self._on_start is not None:
                self._on_start()
            until = None
            while not worker.has_stopped:
                # A signal ends the wait. One that comes just before it is seen after the wait.
                worker.turn(0.1 if self._signals or limit is not None else 1.0)
                if limit is not None and worker.requests() >= limit and self._on_limit is not None:
                    limit = None
                    self._on_limit()
                if self._signals and until is None:
                    logger.info("stopping: %d connections", worker.connections())
                    worker.shutdown()
                    until = time.monotonic() + self.config.graceful_timeout
                if self._signals > 1 or (until is not None and time.monotonic() >= until):
                    worker.abort()
            logger.info("stopped after %d requests", worker.requests())
        finally:
            self._worker = None
            loop.close()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _make_worker(
        self, loop: asyncio.AbstractEventLoop, app: Callable, state: dict | None, interface: str
    ) -> Worker:
        options = {name: getattr(self.config, name) for name in NATIVE}
        options |= {"application": app, "loop": loop, "log": log_exception, "log_event": log_event, "state": state}
        options["wsgi"] = self._wsgi
        options["rsgi"] = interface == "rsgi"
        if interface == "rsgi":
            options["application"] = getattr(app, "__rsgi__", app)
        if interface == "wsgi" and self.config.limit_body is None:
            # The body is received whole before the application is called.
            options["limit_body"] = MOST_WSGI_BODY
        options["server"] = server_of(self.config.bind[0])
        options["static_mounts"] = {static_route(route): folder for route, folder in self.config.static_mounts.items()}
        worker = Worker(self.config.bind, options)
        self.addresses = worker.addresses
        return worker

    async def _watch_limit(self) -> None:
        while self._worker is not None and self._worker.requests() < self.config.limit_requests:
            await asyncio.sleep(0.1)
        if self._on_limit is not None:
            self._on_limit()

    async def _drain(self) -> None:
        worker = self._worker
        assert worker is not None
        logger.info("stopping: %d connections", worker.connections())
        worker.shutdown()
        loop = asyncio.get_running_loop()
        self._until = loop.time() + self.config.graceful_timeout
        # A task may go on after its response, to do work in the background.
        while not worker.has_stopped or worker.tasks():
            if loop.time() >= self._until or self._signals > 1:
                text = "stopping: %d connections are cut, and %d tasks of the application are not waited for"
                logger.warning(text, worker.connections(), worker.tasks())
                worker.abort()
                break
            await asyncio.sleep(0.02)
        while not worker.has_stopped:
            await asyncio.sleep(0)
        logger.info("stopped after %d requests", worker.requests())


def server_of(address: str) -> tuple[str, int | None] | None:
    """Returns the `server` of a scope for an address: host and port, or the path of a unix socket and `None`."""
    if address.startswith("unix:"):
        return (address[5:], None)
    if address.startswith("fd:"):
        with socket.socket(fileno=os.dup(int(address[3:]))) as listener:
            name = listener.getsockname()
        return (name, None) if isinstance(name, str) else name[:2]
    host, _, port = address.rpartition(":")
    return (host.strip("[]"), int(port))


def run(app: Callable | str, *, bind: str | list[str] = "127.0.0.1:8000", **settings) -> None:
    """Serves an application, or the one that `"MODULE:ATTRIBUTE"` names, until a signal to stop comes. The settings are those of
    `Config`. It serves in this process; the command `highwire-server` can start several, and `--reload`.
    """
    known = {setting.name for setting in fields(Config)}
    for name in settings:
        if name not in known:
            hint = {"workers": "the command highwire-server has processes", "reload": "the command highwire-server has --reload",
                    "host": "give bind='HOST:PORT'", "port": "give bind='HOST:PORT'"}.get(name, "see highwire_server.Config")  # fmt: skip
            raise TypeError(f"run() has no setting {name!r}; {hint}")
    if isinstance(app, str):
        app = import_application(app)
    binds = [bind] if isinstance(bind, str) else list(bind)
    Server(Config(app=app, bind=binds, **settings)).run()
