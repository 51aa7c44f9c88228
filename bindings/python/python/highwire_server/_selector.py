"""How an event loop and the server's worker wait together."""

import asyncio
import selectors
from collections.abc import Mapping

from ._highwire import Worker


class WorkerReader:
    """Lets an event loop that waits itself, such as uvloop, run the worker when its descriptor is readable."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._descriptor: int | None = None

    def attach(self, worker: Worker) -> None:
        """Runs a worker from now on."""
        self._descriptor = worker.descriptor()
        self._loop.add_reader(self._descriptor, worker.turn_ready)
        self._loop.call_soon(worker.turn_ready)

    def detach(self) -> None:
        """Runs the worker no longer."""
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)


class WorkerSelector(selectors.BaseSelector):
    """Waits in the worker's turn, for its connections and for the descriptors of the event loop.

    Descriptors are level-triggered, as in other selectors: one that is still ready is reported again.
    """

    def __init__(self) -> None:
        self._worker: Worker | None = None
        self._fallback = selectors.DefaultSelector()
        self._keys: dict[int, selectors.SelectorKey] = {}
        self._reported: list[int] = []

    def attach(self, worker: Worker) -> None:
        """Waits with a worker from now on."""
        self._worker = worker
        for key in self._keys.values():
            worker.watch(key.fd, key.events)

    def detach(self) -> None:
        """Waits without a worker from now on."""
        self._worker = None

    def register(self, fileobj, events, data=None):
        if not events or events & ~(selectors.EVENT_READ | selectors.EVENT_WRITE):
            raise ValueError(f"invalid events: {events!r}")
        # The fallback knows every descriptor, and checks it: a regular file raises PermissionError.
        key = self._fallback.register(fileobj, events, data)
        self._keys[key.fd] = key
        if self._worker is not None:
            self._worker.watch(key.fd, events)
        return key

    def unregister(self, fileobj):
        key = self._fallback.unregister(fileobj)
        del self._keys[key.fd]
        if self._worker is not None:
            self._worker.unwatch(key.fd)
        return key

    def modify(self, fileobj, events, data=None):
        key = self._fallback.modify(fileobj, events, data)
        self._keys[key.fd] = key
        if self._worker is not None:
            self._worker.watch(key.fd, events)
        return key

    def select(self, timeout=None):
        worker = self._worker
        if worker is None or worker.has_stopped:
            # A worker that has stopped does not wait.
            return self._fallback.select(timeout)
        if self._reported:
            for fd in self._reported:
                key = self._keys.get(fd)
                if key is not None:
                    worker.watch(fd, key.events)
            self._reported = []
        reports = worker.turn(timeout)
        if not reports:
            return reports
        ready = []
        for fd, events in reports:
            key = self._keys.get(fd)
            if key is not None:
                self._reported.append(fd)
                if events & key.events:
                    ready.append((key, events & key.events))
        return ready

    def get_key(self, fileobj):
        return self._fallback.get_key(fileobj)

    def get_map(self) -> Mapping:
        return self._fallback.get_map()

    def close(self) -> None:
        self._fallback.close()
        self._keys.clear()
        self._worker = None
