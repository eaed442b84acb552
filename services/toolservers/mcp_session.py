"""An MCP session and the one task that owns it.

The package's cancel scopes must be left by the task that has entered them, so a session is opened and closed by a task
of its own. Calls are tasks too: who waits for one can leave at once, while the cancel is still being sent.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, TypeVar

from mcp import Client, MCPError
from mcp import types as mcp_types

from services.toolservers.api import UNREACHABLE, ServerFailed

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Opens the streams of a transport for a session, which it tells when it can be used no longer.
Transport = Callable[["Session"], AbstractAsyncContextManager[Any]]

# A server that is started may have to be downloaded first.
_OPEN_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 5.0
_LATE: Final = "did not open a session in time"
_CLIENT: Final = mcp_types.Implementation(name="bridle", version="1")


class Session:
    """One session, from its opening to its end. It is not opened again: make another."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._calls: set[asyncio.Task[Any]] = set()
        self._opens_until = asyncio.get_running_loop().time() + _OPEN_SECONDS
        self.lost = ""
        # Not in the context of the call that happens to be the first: its log fields are not the session's.
        self._owner = asyncio.create_task(self._own(), context=contextvars.Context())

    @property
    def usable(self) -> bool:
        """Whether it is open, or may yet be."""
        return not self.lost and not self._owner.done()

    async def client(self, deadline: float) -> Client:
        """The open session. Raises ServerFailed if it could not be opened, or not in time."""
        clock = asyncio.get_running_loop().time
        # Who has little time leaves; others may have more.
        seconds = max(0.0, min(deadline, self._opens_until) - clock())
        await asyncio.wait(_either(self._ready, self._owner), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if self._ready.done():
            return self._ready.result()
        if self._owner.done():
            raise ServerFailed("unavailable", self.lost)
        if clock() >= self._opens_until:
            self.end(_LATE)
            self._owner.cancel()
        raise ServerFailed("timeout", _LATE)

    async def run(self, work: Coroutine[Any, Any, T], deadline: float) -> T:
        """Do something in the session. Leaving early, or at the deadline (TimeoutError), cancels it over there too."""
        task = asyncio.create_task(work)
        self._calls.add(task)
        task.add_done_callback(self._ended)
        try:
            async with asyncio.timeout_at(deadline):
                await asyncio.wait({task})
        finally:
            task.cancel()
        if task.cancelled():
            raise ServerFailed("unavailable", self.lost)
        return task.result()

    def end(self, reason: str) -> None:
        """It is of no use any more."""
        self.lost = self.lost or reason
        self._stop.set()

    def forget(self) -> None:
        """The server knows it no longer. It stays open, so that who was told so hears it."""
        self.lost = self.lost or "has forgotten the session"

    async def close(self) -> None:
        """End the session; what is under way in it ends too."""
        self.end("was closed")
        for task in self._calls:
            task.cancel()
        if self._calls:
            await asyncio.wait(self._calls, timeout=_CLOSE_SECONDS)
        if self._ready.done():
            await asyncio.wait({self._owner}, timeout=_CLOSE_SECONDS)
        if not self._owner.done():
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=_CLOSE_SECONDS)

    async def _own(self) -> None:
        try:
            async with Client(self._transport(self), client_info=_CLIENT, cache=None) as client:
                self._ready.set_result(client)
                await self._stop.wait()
        except asyncio.CancelledError:
            self.end("was closed")
        except BaseException as error:  # a group of whatever the package's tasks have raised
            self.end(_reason(error))
            logger.info("an MCP session has ended", extra={"fields": {"cause": self.lost}})

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._calls.discard(task)
        # Nobody may be left to hear of it.
        with contextlib.suppress(asyncio.CancelledError):
            task.exception()


def _either(*waits: asyncio.Future[Any]) -> set[asyncio.Future[Any]]:
    return set(waits)


def _reason(error: BaseException) -> str:
    """The first cause in a group of errors, as the rest of a sentence."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, ServerFailed):
        return error.cause
    if isinstance(error, MCPError) and error.code == UNREACHABLE:
        return f"cannot be reached ({error})"
    return f"could not be talked to ({type(error).__name__}: {str(error)[:300]})"
