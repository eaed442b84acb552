"""The outbox of callbacks, on SQLite and on Postgres."""

import asyncio
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, insert, select

from common.db.engine import Database
from common.db.tables import outbox
from common.ids import Prefix, new_id
from services.callbacks import store
from services.callbacks.model import Answer, Due
from services.runs.model import Run, RunOptions, RunOutcome, RunRequest, RunState, StopReason

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
LEASE = timedelta(seconds=30)


def stopped(url: str) -> Run:
    return Run(
        id=new_id(Prefix.RUN),
        organization_id="org-1",
        agent_id=new_id(Prefix.AGENT),
        conversation_id=new_id(Prefix.CONVERSATION),
        no=1,
        state=RunState.COMPLETED,
        stop_reason=StopReason.END_TURN,
        request=RunRequest((), RunOptions(callback_url=url)),
        outcome=RunOutcome(),
        background=True,
        last_seq=7,
        cancel_requested_at=None,
        started_at=NOW,
        stopped_at=NOW,
        created_at=NOW,
        updated_at=NOW,
    )


async def take(db: Database, at: datetime = NOW) -> list[Due]:
    return await db.write(store.take, at, LEASE, 10)


def left(conn: Connection) -> list[tuple[int, datetime]]:
    return [(row.attempts, row.due_at) for row in conn.execute(select(outbox.c.attempts, outbox.c.due_at))]


async def test_nobody_is_told_who_did_not_ask(db: Database) -> None:
    await db.write(store.add, stopped(""), NOW)
    assert await db.read(left) == []


async def test_two_takers_never_get_the_same(db: Database) -> None:
    for _ in range(8):
        await db.write(store.add, stopped("https://example.com/"), NOW)
    both = await asyncio.gather(take(db), take(db))
    numbers = [due.no for taken in both for due in taken]
    assert len(numbers) == len(set(numbers))
    again = await take(db)
    assert {due.no for due in again}.isdisjoint(numbers)
    assert len(numbers) + len(again) == 8


async def test_what_a_dead_taker_had_is_due_again_after_its_lease(db: Database) -> None:
    run = stopped("https://example.com/")
    await db.write(store.add, run, NOW)
    [first] = await take(db)
    assert (first.attempts, first.stop.run_id, first.stop.seq) == (1, run.id, 7)
    assert await take(db, NOW + LEASE / 2) == []
    [second] = await take(db, NOW + LEASE)
    assert (second.no, second.attempts) == (first.no, 2)


async def test_a_refused_one_comes_back_and_a_taken_one_does_not(db: Database) -> None:
    await db.write(store.add, stopped("https://example.com/"), NOW)
    [due] = await take(db)
    await db.write(store.close, due, Answer(status=503), NOW, timedelta(seconds=5))
    assert await db.read(left) == [(1, NOW + timedelta(seconds=5))]
    assert not await db.read(store.is_due, NOW)
    [due] = await take(db, NOW + timedelta(seconds=5))
    await db.write(store.close, due, Answer(status=204), NOW, None)
    assert await db.read(left) == []


async def test_other_topics_of_the_outbox_are_left_alone(db: Database) -> None:
    def add_other(conn: Connection) -> None:
        row = {"organization_id": "org-1", "topic": "other", "key": "k", "payload": "{}", "attempts": 0}
        conn.execute(insert(outbox), {**row, "due_at": NOW, "created_at": NOW})

    await db.write(add_other)
    assert await take(db) == []
    assert not await db.read(store.is_due, NOW)
