"""The lifespan protocol of ASGI: the application's start and end."""

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger("highwire.error")


class LifespanFailed(Exception):
    """The application has refused to start, or has failed meanwhile."""


class Lifespan:
    """Runs the lifespan of an application. `state` is what the scopes of its requests get a copy of."""

    def __init__(self, app: Callable, mode: str) -> None:
        if mode not in ("auto", "on", "off"):
            raise ValueError(f"lifespan must be 'auto', 'on' or 'off', not {mode!r}")
        self._app = app
        self._mode = mode
        self._events: asyncio.Queue = asyncio.Queue()
        self._answer: asyncio.Future | None = None
        self._task: asyncio.Task | None = None
        self.state: dict | None = None

    async def startup(self) -> None:
        """Starts the application. Raises LifespanFailed if it refuses, or if it raises with the mode `"on"`."""
        if self._mode == "off":
            return
        self.state = {}
        self._task = asyncio.create_task(self._run())
        await self._exchange("startup")

    async def shutdown(self, timeout: float | None = None) -> None:
        """Ends the application. An error of it is logged. After `timeout` seconds, it is cancelled."""
        if self._task is None or self._task.done():
            return
        try:
            async with asyncio.timeout(timeout):
                await self._exchange("shutdown")
                await self._task
        except LifespanFailed as error:
            logger.error("%s", error)
        except TimeoutError:
            logger.error("the application's shutdown takes longer than %g s, and is cancelled", timeout)
            self.cancel()
        except Exception:
            logger.exception("the application's shutdown has raised an exception")

    def cancel(self) -> None:
        """Ends the application without its shutdown."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        scope = {
            "type": "lifespan",
            "asgi": {"version": "3.0", "spec_version": "2.0"},
            "state": self.state,
        }
        await self._app(scope, self._events.get, self._send)

    async def _send(self, message: dict) -> None:
        answer = self._answer
        if answer is None or answer.done():
            raise RuntimeError(f"{message['type']!r} was sent at a time when it is not expected")
        answer.set_result(message)

    async def _exchange(self, what: str) -> None:
        task = self._task
        assert task is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._events.put_nowait({"type": f"lifespan.{what}"})
        await asyncio.wait((task, self._answer), return_when=asyncio.FIRST_COMPLETED)
        if self._answer.done():
            message = self._answer.result()
            if message["type"] == f"lifespan.{what}.complete":
                return
            if message["type"] == f"lifespan.{what}.failed":
                # The application may raise after this message, which tells nothing new.
                task.add_done_callback(lambda task: task.cancelled() or task.exception())
                text = message.get("message")
                raise LifespanFailed(f"the application's {what} has failed" + (f": {text}" if text else ""))
            raise LifespanFailed(f"{message['type']!r} does not answer 'lifespan.{what}'")
        error = None if task.cancelled() else task.exception()
        if what == "startup" and self._mode == "auto" and error is not None:
            # An application without a lifespan raises when it sees the unknown scope.
            logger.info("the application has no lifespan (%s: %s)", type(error).__name__, error)
            self.state = None
            return
        if error is not None:
            raise LifespanFailed(f"the application's {what} has raised an exception") from error
        if what == "startup" and self._mode == "on":
            raise LifespanFailed("the application has returned from its lifespan before its start")


class RsgiLifespan:
    """Runs the start and the end of an application of RSGI: its `__rsgi_init__` and `__rsgi_del__`, if it has them."""

    state = None

    def __init__(self, app: Callable) -> None:
        self._app = app
        #: True if `begin` and `end` are called by someone else, outside of the loop.
        self._is_outside = False

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the application. Raises LifespanFailed if that raises."""
        self._is_outside = not loop.is_running()
        try:
            self._call("__rsgi_init__", loop)
        except Exception as error:
            raise LifespanFailed("the application's __rsgi_init__ has raised an exception") from error

    def end(self, loop: asyncio.AbstractEventLoop) -> None:
        """Ends the application. An exception is logged."""
        try:
            self._call("__rsgi_del__", loop)
        except Exception:
            logger.exception("the application's __rsgi_del__ has raised an exception")

    async def startup(self) -> None:
        """Starts the application, unless it has begun."""
        if not self._is_outside:
            self.begin(asyncio.get_running_loop())

    async def shutdown(self, timeout: float | None = None) -> None:
        """Ends the application, unless someone else does."""
        if not self._is_outside:
            self.end(asyncio.get_running_loop())

    def cancel(self) -> None:
        """Does nothing, because nothing waits."""

    def _call(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        method = getattr(self._app, name, None)
        if method is not None:
            method(loop)
