"""Servers for the tests: each is a process of its own, as a user starts it."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent

#: The time in seconds in which a server must start, and in which it must end.
PATIENCE = 20.0


#: The commands of other servers, for a comparison by compare.py.
OTHERS = {
    "uvicorn": ["-m", "uvicorn", "--loop", "uvloop", "--http", "httptools", "--ws", "websockets-sansio"],
    "hypercorn": ["-m", "hypercorn", "--bind"],
    "granian": ["-m", "granian", "--interface", "asgi", "--workers", "1"],
}


class Running:
    """A server that runs. Its log is what it has written so far."""

    def __init__(self, arguments: list[str], folder: Path, log: Path, name: str = "highwire") -> None:
        self.log_file = log
        with log.open("wb") as output:
            command = [sys.executable, "-m", "highwire_server", "--app-dir", str(folder), *arguments]
            if name != "highwire":
                app, port = arguments[0], arguments[arguments.index("--port") + 1]
                address = [f"127.0.0.1:{port}"] if name == "hypercorn" else ["--port", port]
                command = [sys.executable, *OTHERS[name], *address, app]
            # Some servers leave processes behind, which end with the session.
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=folder, start_new_session=True
            )
        self.port = int(arguments[arguments.index("--port") + 1]) if "--port" in arguments else 0

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def wait_for(self, text: str, count: int = 1) -> None:
        """Waits until the log contains a text so often."""
        until = time.monotonic() + PATIENCE
        while self.log.count(text) < count:
            assert time.monotonic() < until, f"{text!r} is not in the log:\n{self.log}"
            try:
                self.process.wait(0.02)
            except subprocess.TimeoutExpired:
                continue
            assert self.log.count(text) >= count, f"the server has ended:\n{self.log}"

    def processes(self) -> list[int]:
        """Returns the ids of the process and of those that it has started."""
        own = self.process.pid
        children = Path(f"/proc/{own}/task/{own}/children").read_text()
        return [own, *map(int, children.split())]

    def stop(self) -> int:
        """Stops the server and returns its exit status."""
        self.process.terminate()
        try:
            return self.process.wait(PATIENCE)
        finally:
            try:
                os.killpg(self.process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture
def start(tmp_path):
    """A function that starts the command with arguments, and with a free port."""
    running = []

    def run(app: str, *arguments: str, wait: str | None = "listening on", folder: Path = HERE) -> Running:
        port = free_port()
        log = tmp_path / f"server-{len(running)}.log"
        server = Running([app, "--port", str(port), *arguments], folder, log)
        running.append(server)
        if wait is not None:
            server.wait_for(wait)
        return server

    yield run
    for server in running:
        server.stop()


@pytest.fixture(scope="session")
def any_server(tmp_path_factory):
    """The server that compare.py names, or this one."""
    name = os.environ.get("CONFORMANCE_SERVER", "highwire")
    log = tmp_path_factory.mktemp("cases") / f"{name}.log"
    running = Running(["conformance_app:app", "--port", str(free_port())], HERE, log, name)
    until = time.monotonic() + PATIENCE
    while True:
        try:
            running.connect().close()
            break
        except OSError:
            assert time.monotonic() < until and running.process.poll() is None, running.log
            time.sleep(0.05)
    yield running
    running.stop()


@pytest.fixture(scope="session", params=["uring", "readiness", "uvloop"])
def server(request, tmp_path_factory):
    """The server of the conformance cases, over each engine, and in an event loop that waits itself."""
    loop, engine = ("uvloop", "auto") if request.param == "uvloop" else ("asyncio", request.param)
    log = tmp_path_factory.mktemp("conformance") / f"{request.param}.log"
    arguments = ["conformance_app:app", "--port", str(free_port()), "--engine", engine, "--loop", loop]
    running = Running(arguments, HERE, log)
    try:
        running.wait_for("listening on")
    except AssertionError:
        if "io_uring" in running.log or "needs the package uvloop" in running.log:
            pytest.skip(f"not run: {running.log}")
        raise
    yield running
    assert running.stop() == 0


os.environ.setdefault("PYTHONUNBUFFERED", "1")
