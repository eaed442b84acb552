"""A repeated request id gives the first answer; a reused one is refused; the effect happens once."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, func, select

from common.db import idempotency
from common.db.engine import Database
from common.db.tables import nodes
from common.errors import RequestIdReused

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
ORG = "org-1"


def create_node(conn: Connection, request_id: str, content: str, new_id: str, organization_id: str = ORG) -> str:
    """What a Create method does: replay, or do it and remember, all in one transaction."""
    fingerprint = idempotency.fingerprint(content.encode())
    known = idempotency.replay(conn, organization_id, "CreateNode", request_id, fingerprint)
    if known is not None:
        return known
    conn.execute(nodes.insert().values(id=new_id, address=content, started_at=NOW, heartbeat_at=NOW))
    idempotency.remember(conn, organization_id, "CreateNode", request_id, fingerprint, new_id, NOW)
    return new_id


def count(conn: Connection) -> int:
    return conn.execute(select(func.count()).select_from(nodes)).scalar_one()


async def test_a_repeat_gets_the_first_answer(db: Database) -> None:
    assert await db.write(create_node, "r1", "host", "node-1") == "node-1"
    assert await db.write(create_node, "r1", "host", "node-2") == "node-1"
    assert await db.read(count) == 1


async def test_other_content_under_the_same_id_is_refused_and_changes_nothing(db: Database) -> None:
    await db.write(create_node, "r1", "host", "node-1")
    with pytest.raises(RequestIdReused) as caught:
        await db.write(create_node, "r1", "elsewhere", "node-2")
    assert caught.value.metadata == {"request_id": "r1"}
    assert await db.read(count) == 1


async def test_without_an_id_every_call_is_a_new_one(db: Database) -> None:
    assert await db.write(create_node, "", "host", "node-1") == "node-1"
    assert await db.write(create_node, "", "host", "node-2") == "node-2"


async def test_organizations_do_not_share_ids(db: Database) -> None:
    assert await db.write(create_node, "r1", "host", "node-1") == "node-1"
    assert await db.write(create_node, "r1", "elsewhere", "node-2", "org-2") == "node-2"


async def test_a_failed_effect_is_not_remembered(db: Database) -> None:
    def fail(conn: Connection) -> None:
        create_node(conn, "r1", "host", "node-1")
        raise LookupError

    with pytest.raises(LookupError):
        await db.write(fail)
    assert await db.write(create_node, "r1", "host", "node-2") == "node-2"


async def test_twins_that_arrive_together_have_one_effect(db: Database) -> None:
    answers = await asyncio.gather(*(db.write(create_node, "r1", "host", f"node-{n}") for n in range(20)))
    assert len(set(answers)) == 1
    assert await db.read(count) == 1


async def test_old_answers_are_forgotten(db: Database) -> None:
    await db.write(create_node, "r1", "host", "node-1")
    assert await db.write(idempotency.forget_before, NOW) == 0
    assert await db.write(idempotency.forget_before, NOW + timedelta(seconds=1)) == 1
    assert await db.write(create_node, "r1", "host", "node-2") == "node-2"
