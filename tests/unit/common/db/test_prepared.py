"""Prepared statements answer, fail and take part in transactions as SQLAlchemy's own do."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import Connection, bindparam, func, insert, select, update
from sqlalchemy.exc import IntegrityError, MultipleResultsFound, NoResultFound

from common.db.prepared import DirectConnection, prepared
from common.db.sqlite import InlineSqlite
from common.db.tables import agent_tags, agents, metadata, nodes

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)

_ADD = prepared(insert(nodes))
_GET = prepared(select(nodes).where(nodes.c.id == bindparam("node")))
_ALL = prepared(select(nodes.c.id).order_by(nodes.c.id).limit(bindparam("most")))
_MOVE = prepared(
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(address=nodes.c.address + "!", heartbeat_at=bindparam("now"))
    .returning(nodes)
)
_ADD_TAG = prepared(insert(agent_tags))
TAG = {"agent_id": "agent-1", "tag": "x", "folded": "x", "organization_id": "org-1"}
_TOUCH = prepared(update(nodes).values(heartbeat_at=bindparam("now")))


@pytest.fixture
async def db() -> AsyncIterator[InlineSqlite]:
    opened = InlineSqlite()
    await opened.write(lambda conn: metadata.create_all(conn, [nodes, agents, agent_tags]))
    yield opened
    await opened.close()


def add(conn: Connection, *ids: str) -> None:
    for each in ids:
        conn.execute(_ADD, {"id": each, "address": "here", "started_at": NOW, "heartbeat_at": NOW})


def count(conn: Connection) -> int:
    return int(conn.execute(select(func.count()).select_from(nodes)).scalar_one())


async def test_rows_are_what_sqlalchemy_would_give(db: InlineSqlite) -> None:
    await db.write(add, "a", "b")

    def compare(conn: Connection) -> tuple[Any, Any]:
        plain = select(nodes).where(nodes.c.id == "a")
        return conn.execute(_GET, {"node": "a"}).one(), conn.execute(plain).one()

    ours, theirs = await db.read(compare)
    assert tuple(ours) == tuple(theirs)
    assert (ours.id, ours.started_at) == ("a", NOW)


async def test_every_way_to_read_an_answer(db: InlineSqlite) -> None:
    await db.write(add, "a", "b", "c")

    def read(conn: Connection) -> None:
        two, none, one = {"most": 2}, {"most": 0}, {"most": 1}
        assert list(conn.execute(_ALL, two).scalars()) == ["a", "b"]
        assert [row.id for row in conn.execute(_ALL, two)] == ["a", "b"]
        assert [row.id for row in conn.execute(_ALL, two).all()] == ["a", "b"]
        assert (conn.execute(_ALL, two).scalar(), conn.execute(_ALL, none).scalar()) == ("a", None)
        assert (conn.execute(_ALL, one).scalar_one(), conn.execute(_ALL, one).one().id) == ("a", "a")
        assert conn.execute(_ALL, none).one_or_none() is None
        assert conn.execute(_ALL, none).scalar_one_or_none() is None
        assert conn.execute(_ALL, one).scalar_one_or_none() == "a"
        with pytest.raises(NoResultFound):
            conn.execute(_ALL, none).one()
        with pytest.raises(MultipleResultsFound):
            conn.execute(_ALL, two).one_or_none()

    await db.read(read)


async def test_changes_say_what_they_did(db: InlineSqlite) -> None:
    await db.write(add, "a", "b")

    def change(conn: Connection) -> None:
        moved = conn.execute(_MOVE, {"node": "a", "now": NOW}).one()
        assert (moved.address, moved.heartbeat_at) == ("here!", NOW)
        assert conn.execute(_MOVE, {"node": "x", "now": NOW}).one_or_none() is None
        assert conn.execute(_TOUCH, {"now": NOW}).rowcount == 2

    await db.write(change)


async def test_an_error_is_sqlalchemys_and_undoes_everything(db: InlineSqlite) -> None:
    def twice(conn: Connection) -> None:
        conn.execute(insert(nodes).values(id="x", address="here", started_at=NOW, heartbeat_at=NOW))
        add(conn, "a", "a")

    with pytest.raises(IntegrityError):
        await db.write(twice)
    assert await db.read(count) == 0
    await db.write(add, "a")
    assert await db.read(count) == 1


async def test_a_failure_of_the_caller_undoes_everything(db: InlineSqlite) -> None:
    def fail(conn: Connection) -> None:
        add(conn, "a")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await db.write(fail)
    assert await db.read(count) == 0


@pytest.mark.parametrize("plain", [False, True], ids=["prepared", "plain"])
async def test_a_failing_commit_undoes_everything(db: InlineSqlite, plain: bool) -> None:
    def orphan(conn: DirectConnection) -> None:
        add(conn, "a")
        # Checked at the commit, which then fails.
        conn.driver.execute("PRAGMA defer_foreign_keys = ON")
        conn.execute(insert(agent_tags) if plain else _ADD_TAG, TAG)

    with pytest.raises(IntegrityError):
        await db.write(orphan)  # type: ignore[arg-type]  # its connections are direct ones
    assert await db.read(count) == 0
    await db.write(add, "a")
    assert await db.read(count) == 1


async def test_several_rows_at_once_are_left_to_sqlalchemy(db: InlineSqlite) -> None:
    rows = [{"id": each, "address": "here", "started_at": NOW, "heartbeat_at": NOW} for each in "ab"]
    await db.write(lambda conn: conn.execute(_ADD, rows) and None)
    assert await db.read(count) == 2


async def test_a_statement_whose_text_depends_on_values_is_refused(
    db: InlineSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A wrong one must not stay marked: servers of other tests compile what is.
    monkeypatch.setattr("common.db.prepared._marked", {})
    wrong = prepared(select(nodes.c.id).where(nodes.c.id.in_(["a", "b"])))
    with pytest.raises(TypeError, match="IN with parameters"):
        await db.read(lambda conn: conn.execute(wrong).all())
