"""Readers of a run's log when its writer comes and goes."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from common.clock import ManualClock
from common.db.sqlite import InlineSqlite
from common.db.tables import metadata
from services.runs.events import Entry, TextDelta
from services.runs.log import RunLog

RUN = "run-1"


class CountedDatabase(InlineSqlite):
    """Says how often it was asked."""

    asked = 0

    async def lookup(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        return await super().lookup(fn, *args, **kwargs)


@pytest.fixture
async def db() -> AsyncIterator[CountedDatabase]:
    opened = CountedDatabase()
    await opened.write(lambda conn: metadata.create_all(conn))
    yield opened
    await opened.close()


def texts(batch: list[Entry]) -> list[str]:
    return [entry.event.text for entry in batch if isinstance(entry.event, TextDelta)]


async def test_a_reader_gets_what_a_writer_showed_before_it_went(db: CountedDatabase) -> None:
    log = RunLog(db, ManualClock(), heartbeat=0.0)
    tail = log.open(RUN, 0)
    reader = log.follow(RUN, 0)
    tail.append(TextDelta("message-1", 0, "a"))
    assert texts(await anext(reader)) == ["a"]
    tail.append(TextDelta("message-1", 0, "b"))
    log.close(RUN, tail)
    assert texts(await anext(reader)) == ["b"]
    assert db.asked == 0
    assert await anext(reader) == [], "nothing is left, so it looks at the database"
    assert db.asked == 1
    await reader.aclose()


async def test_the_next_writer_takes_over_from_the_last(db: CountedDatabase) -> None:
    log = RunLog(db, ManualClock(), heartbeat=0.0)
    first = log.open(RUN, 0)
    reader = log.follow(RUN, 0)
    first.append(TextDelta("message-1", 0, "a"))
    assert texts(await anext(reader)) == ["a"]
    log.close(RUN, first)
    second = log.open(RUN, 1)
    second.append(TextDelta("message-1", 0, "b"))
    batch = await anext(reader)
    assert [entry.seq for entry in batch] == [2]
    assert texts(batch) == ["b"]
    assert db.asked == 0
    await reader.aclose()
