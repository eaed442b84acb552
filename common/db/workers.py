"""Threads for a blocking database: each owns one connection, all take their transactions from one queue.

This is a thread pool with less in it than `concurrent.futures`: a hop costs about half the CPU (one future instead of
two, no per-item lock), and there are several hops in every message an agent gets.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple

from sqlalchemy import Connection

from common.errors import StoreUnavailable


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
