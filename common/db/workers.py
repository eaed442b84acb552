"""Threads for a blocking database: each owns one connection, all take their transactions from one queue.

This is a thread pool with less in it than `concurrent.futures`: a hop costs about half the CPU (one future instead of
two, no per-item lock), and there are several hops in every message an agent gets.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, NamedTuple

from sqlalchemy import Connection

from common.errors import StoreUnavailable

logger = logging.getLogger(__name__)


class _Job(NamedTuple):
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    call: Callable[[Connection], Any]


class Workers:
    """A fixed set of threads, one per connection given. Jobs start in the order they were submitted."""

    def __init__(self, name: str, connections: Sequence[Connection]) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._open = True
        self._threads = [
            # Daemons, so that a crash elsewhere can end the process: an open transaction is then as after kill -9.
            Thread(target=self._serve, args=(connection,), name=f"{name}-{number}", daemon=True)
            for number, connection in enumerate(connections)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, call: Callable[[Connection], Any]) -> asyncio.Future[Any]:
        """Queue one call; the future belongs to the running loop."""
        if not self._open:
            raise StoreUnavailable
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._jobs.put(_Job(loop, future, call))
        return future

    async def close(self) -> None:
        """Run what is queued, then close the connections and end the threads."""
        self._open = False
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _serve(self, connection: Connection) -> None:
        while (job := self._jobs.get()) is not None:
            # Nobody waits for it any more and it has not begun: not running it is the cheapest way to be cancelled.
            if not job.future.cancelled():
                _run(job, connection)
            del job  # or its result would live until the next one comes
        connection.close()


class Inline:
    """Runs each call at once, in the caller's task: for a connection that never waits for the disk."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def submit(self, call: Callable[[Connection], Any]) -> Any:
        """The call's result."""
        if self._connection.closed:
            raise StoreUnavailable
        return call(self._connection)

    async def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class WalFolder:
    """Moves what was committed from the log into the database file, so that no commit has to."""

    def __init__(self, connection: Connection, seconds: float = 0.5) -> None:
        self._connection = connection
        self._seconds = seconds
        self._stop = Event()
        self._thread = Thread(target=self._serve, name="sqlite-wal", daemon=True)
        self._thread.start()

    async def close(self) -> None:
        """Stop folding; closing the last connection to the file does the rest."""
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _serve(self) -> None:
        driver: Any = self._connection.connection.driver_connection
        while not self._stop.wait(self._seconds):
            try:
                # PASSIVE takes nothing from readers and writers; what it cannot move now it moves next time.
                driver.execute("PRAGMA wal_checkpoint(PASSIVE)")
            except Exception:
                logger.exception("the write-ahead log could not be folded into the database")
        self._connection.close()


def _run(job: _Job, connection: Connection) -> None:
    result: Any = None
    error: BaseException | None = None
    try:
        result = job.call(connection)
    except StopIteration as stop:
        # asyncio refuses it in a future, and the caller would wait for ever.
        error = RuntimeError("a store function raised StopIteration")
        error.__cause__ = stop
    except BaseException as caught:  # it belongs to the caller, and the thread must live on
        error = caught
    # A loop that was closed under its own transaction raises: there is nobody left to tell.
    with suppress(RuntimeError):
        job.loop.call_soon_threadsafe(_settle, job.future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return  # The awaiting task was cancelled meanwhile.
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
