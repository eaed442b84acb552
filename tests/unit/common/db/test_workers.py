"""The threads behind a blocking database."""

import asyncio
import threading
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from common.db.sqlite import make_engine
from common.db.workers import Workers


@pytest.fixture
async def worker() -> AsyncIterator[Workers]:
    workers = Workers("test", [make_engine(None, "BEGIN").connect()])
    yield workers
    await workers.close()


def _note(seen: list[int], number: int, _: object) -> None:
    seen.append(number)


def _hold(started: threading.Event, go_on: threading.Event, _: object) -> None:
    started.set()
    go_on.wait(10)


async def test_jobs_run_in_order_off_the_loop(worker: Workers) -> None:
    seen: list[int] = []
    await asyncio.gather(*(worker.submit(partial(_note, seen, n)) for n in range(100)))
    assert seen == list(range(100))
    assert await worker.submit(lambda _: threading.current_thread()) is not threading.current_thread()


async def test_a_caller_that_left_is_not_told_and_nothing_complains(worker: Workers) -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    try:
        started, go_on = threading.Event(), threading.Event()
        job = worker.submit(partial(_hold, started, go_on))
        await asyncio.to_thread(started.wait)
        job.cancel()
        go_on.set()
        assert await worker.submit(lambda _: "next") == "next"
    finally:
        loop.set_exception_handler(None)
    assert complaints == []


async def test_an_error_reaches_its_caller_and_the_thread_lives_on(worker: Workers) -> None:
    def fail(_: object) -> None:
        raise SystemExit("even this one")

    with pytest.raises(SystemExit):
        await worker.submit(fail)
    assert await worker.submit(lambda _: "next") == "next"


async def test_a_loop_that_is_gone_does_not_stop_the_others(worker: Workers) -> None:
    started, go_on = threading.Event(), threading.Event()

    async def leave() -> None:
        worker.submit(partial(_hold, started, go_on))
        started.wait()

    await asyncio.to_thread(asyncio.run, leave())
    go_on.set()
    assert await worker.submit(lambda _: "next") == "next"
