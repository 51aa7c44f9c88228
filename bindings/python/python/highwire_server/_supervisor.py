"""Several processes that serve one application, and the process that starts and replaces them."""

import json
import logging
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field

from ._options import Options
from ._process import CANNOT_SERVE, LATE

logger = logging.getLogger("highwire.error")

#: The time in which a process must serve, in seconds.
START = 60.0

#: The first and the longest wait before a process that has ended is started again, in seconds.
BACK_OFF = (0.2, 30.0)

#: The seconds after which a process is replaced that should be replaced, if the last try has failed.
TRY_AGAIN = 10.0

#: The seconds after which a process is killed that has not ended itself when it should.
KILL = 2.0

#: The seconds between two looks at the memory of the processes.
LOOK = 1.0

#: The life in seconds after which a process counts as healthy, so that its end is answered at once.
HEALTHY = 10.0


@dataclass
class Process:
    """A process that serves."""

    popen: subprocess.Popen
    pipe: int
    begun: float = field(default_factory=time.monotonic)
    #: The moment at which the process is to be replaced.
    until: float = float("inf")
    is_ready: bool = False
    #: The process takes the place of this one as soon as it serves.
    replaces: "Process | None" = None
    is_stopping: bool = False
    #: A signal to replace all processes has come while this one was starting.
    is_stale: bool = False
    kill_at: float | None = None
    buffer: bytes = b""


class Supervisor:
    """Starts processes that inherit the listeners, and replaces those that end."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._processes: list[Process] = []
        self._sockets: list[socket.socket] = []
        self._waits: list[float] = []
        self._failures = 0
        self._is_stopping = False
        #: True if a process has served, so that the application can be served.
        self._has_served = False
        self._status = 0
        self._wakeup = os.pipe()
        self._signals: list[int] = []

    def run(self) -> int:
        """Runs until a signal to stop comes, or until the application cannot be served. Returns the exit status."""
        try:
            self._listen()
        except OSError as error:
            logger.error("%s", error)
            return CANNOT_SERVE
        os.set_blocking(self._wakeup[0], False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, self._note)
        stop_watching = self._watch_files() if self._options.reload else None
        for _ in range(self._options.workers):
            self._start()
        while self._processes or self._waits:
            self._wait()
            self._handle_signals()
            self._reap()
            self._start_again()
            self._kill_late()
            self._recycle()
        if stop_watching is not None:
            stop_watching()
        return self._status

    def _note(self, number: int, _frame) -> None:
        self._signals.append(number)
        os.write(self._wakeup[1], b"x")

    def _listen(self) -> None:
        """Opens the listeners, which all processes share, so that no connection is lost when one is replaced."""
        binds = []
        for address in self._options.binds():
            if address.startswith("fd:"):
                binds.append(address)
                os.set_inheritable(int(address[3:]), True)
                continue
            listener = listen(address, self._options.backlog)
            self._sockets.append(listener)
            binds.append(f"fd:{listener.fileno()}")
        self._options.bind = binds

    def _start(self, replaces: Process | None = None) -> None:
        reader, writer = os.pipe()
        environment = dict(os.environ)
        environment["HIGHWIRE_PROCESS"] = json.dumps({"options": self._options.as_dict(), "pipe": writer})
        descriptors = [int(address[3:]) for address in self._options.bind]
        try:
            popen = subprocess.Popen(
                [sys.executable, "-m", "highwire_server._command"],
                env=environment,
                pass_fds=[*descriptors, writer],
            )
        except OSError as error:
            # The other processes go on, and another try follows.
            os.close(reader)
            if replaces is None:
                self._start_later("no process can be started: %s", error)
            else:
                logger.error("no replacement can be started: %s", error)
            return
        finally:
            os.close(writer)
        self._processes.append(Process(popen, reader, replaces=replaces))

    def _wait(self) -> None:
        now = time.monotonic()
        moments = [*self._waits, *(process.kill_at for process in self._processes if process.kill_at is not None)]
        moments += [process.begun + START for process in self._processes if not process.is_ready and not process.is_stopping]
        moments += [process.until for process in self._processes if not process.is_stopping]
        if self._options.workers_max_rss is not None:
            moments.append(now + LOOK)
        # A process that waits for a change of the files has no moment.
        moments = [moment for moment in moments if moment != float("inf")]
        timeout = max(0.0, min(moments) - now) if moments else None
        pipes = {process.pipe: process for process in self._processes if process.pipe >= 0}
        ready, _, _ = select.select([self._wakeup[0], *pipes], [], [], timeout)
        for descriptor in ready:
            if descriptor == self._wakeup[0]:
                os.read(descriptor, 4096)
            else:
                self._hear(pipes[descriptor])

    def _hear(self, process: Process) -> None:
        received = os.read(process.pipe, 4096)
        if not received:
            os.close(process.pipe)
            process.pipe = -1
            return
        process.buffer += received
        *lines, process.buffer = process.buffer.split(b"\n")
        for line in lines:
            if line == b"started":
                process.is_ready = self._has_served = True
                if self._options.workers_lifetime is not None:
                    process.until = time.monotonic() + self._options.workers_lifetime
                self._failures = 0
                logger.info("process %d serves", process.popen.pid)
                if process.replaces is not None:
                    self._stop(process.replaces)
                    process.replaces = None
                if process.is_stale:
                    process.is_stale, process.until = False, 0.0
            elif line == b"replace":
                process.until = 0.0

    def _stop(self, process: Process) -> None:
        if process.is_stopping:
            return
        process.is_stopping = True
        process.kill_at = time.monotonic() + self._options.timeout_graceful_shutdown + LATE + KILL
        process.popen.terminate()

    def _handle_signals(self) -> None:
        while self._signals:
            number = self._signals.pop(0)
            if number == signal.SIGHUP and not self._is_stopping:
                self._replace_all()
            elif number in (signal.SIGTERM, signal.SIGINT):
                if self._is_stopping:
                    # The second signal does not wait for requests.
                    for process in self._processes:
                        process.popen.send_signal(signal.SIGQUIT)
                self._is_stopping = True
                self._waits.clear()
                for process in self._processes:
                    self._stop(process)

    def _replace_all(self) -> None:
        logger.info("replacing all processes")
        # Those that wait for a change of the files need not wait.
        self._waits = [0.0 if moment == float("inf") else moment for moment in self._waits]
        for process in list(self._processes):
            if process.is_stopping:
                continue
            if process.replaces is None:
                process.until = 0.0
            else:
                # It may have begun with the application as it was before. It is replaced once it serves, so that processes
                # follow one another even if the application changes all the time.
                process.is_stale = True

    def _replace(self, process: Process) -> None:
        """Starts a process that takes the place of another one, unless there is one already."""
        if all(other.replaces is not process for other in self._processes):
            logger.info("process %d is to be replaced", process.popen.pid)
            self._start(replaces=process)

    def _reap(self) -> None:
        for process in list(self._processes):
            status = process.popen.poll()
            if status is None:
                continue
            self._processes.remove(process)
            if process.pipe >= 0:
                os.close(process.pipe)
            if process.is_stopping or self._is_stopping:
                continue
            pid, life = process.popen.pid, time.monotonic() - process.begun
            if process.replaces is not None:
                # The process that it should have replaced goes on.
                logger.error("process %d, a replacement, has ended with the status %d", pid, status)
                if process.is_stale:
                    process.replaces.until = 0.0
                continue
            successor = next((other for other in self._processes if other.replaces is process), None)
            if successor is not None:
                successor.replaces = None
                continue
            if status == CANNOT_SERVE and not self._has_served and not self._options.reload:
                logger.error("process %d cannot serve the application", pid)
                self._give_up(status)
                continue
            if status == CANNOT_SERVE and self._options.reload:
                logger.info("waiting for a change of the files")
                self._waits.append(float("inf"))
                continue
            if life >= HEALTHY:
                self._failures = -1
            self._start_later("process %d has ended with the status %d", pid, status)

    def _start_later(self, text: str, *values: object) -> None:
        """Starts a process after a wait, which doubles with each failure."""
        self._failures += 1
        first, longest = BACK_OFF
        wait = min(first * 2**self._failures, longest) if self._failures else 0.0
        logger.error(text + "; another follows in %.1f s", *values, wait)
        self._waits.append(time.monotonic() + wait)

    def _give_up(self, status: int) -> None:
        self._status = status
        self._is_stopping = True
        self._waits.clear()
        for process in self._processes:
            self._stop(process)

    def _start_again(self) -> None:
        now = time.monotonic()
        for moment in [moment for moment in self._waits if moment <= now]:
            self._waits.remove(moment)
            self._start()

    def _kill_late(self) -> None:
        now = time.monotonic()
        for process in self._processes:
            if process.kill_at is not None and process.kill_at <= now:
                logger.error("process %d does not stop, and is killed", process.popen.pid)
                process.popen.kill()
                process.kill_at = None
            elif not process.is_ready and not process.is_stopping and process.begun + START <= now:
                logger.error("process %d does not serve after %.0f s, and is stopped", process.popen.pid, START)
                process.is_stopping = False
                process.begun = now
                process.popen.kill()

    def _recycle(self) -> None:
        """Replaces processes that are too old or too large."""
        now, most = time.monotonic(), self._options.workers_max_rss
        for process in list(self._processes):
            if process.is_stopping or self._is_stopping:
                continue
            if process.until <= now:
                # If the replacement fails, another one is tried later.
                process.until = now + TRY_AGAIN
                self._replace(process)
            elif not process.is_ready:
                continue
            elif most is not None and now - process.begun >= HEALTHY and (rss := resident(process.popen.pid)) > most:
                # A new process may be too large, too. It is not replaced at once.
                if all(other.replaces is not process for other in self._processes):
                    logger.info("process %d takes %d MiB of memory", process.popen.pid, rss)
                    self._replace(process)

    def _watch_files(self):
        """Replaces the processes when files change. Returns a function that ends this."""
        from watchfiles import PythonFilter, watch

        stop = threading.Event()
        folders = self._options.reload_dirs or [self._options.app_dir or "."]

        def run() -> None:
            for changes in watch(*folders, watch_filter=PythonFilter(), stop_event=stop, raise_interrupt=False):
                logger.info("%s has changed", ", ".join(sorted(os.path.relpath(path) for _, path in changes)))
                self._note(signal.SIGHUP, None)

        thread = threading.Thread(target=run, name="highwire-reload", daemon=True)
        thread.start()
        return stop.set


def resident(pid: int) -> int:
    """Returns the resident memory of a process in MiB, or 0 if it is not known."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    except (OSError, ValueError, IndexError):
        return 0


def listen(address: str, backlog: int) -> socket.socket:
    """Opens a listener at `HOST:PORT`, `[IPV6]:PORT` or `unix:PATH`. Processes that are started inherit it."""
    if address.startswith("unix:"):
        path = address[5:]
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # A file that a server has left behind is removed; one on which a server listens is not.
            listener.connect(path)
        except FileNotFoundError:
            pass
        except ConnectionRefusedError:
            # Connecting to a file that is no socket is refused, too.
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                listener.close()
                raise OSError(f"cannot listen on {path}: it is not a socket") from None
            os.unlink(path)
        else:
            listener.close()
            raise OSError(f"another server listens on {path}")
        listener.close()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
    else:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, int(port)))
        except OSError as error:
            listener.close()
            raise OSError(f"cannot listen on {address}: {error.strerror}") from None
    listener.listen(backlog)
    listener.set_inheritable(True)
    return listener
