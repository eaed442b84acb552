"""The store of blocks does the same on SQLite and on Postgres."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, func, select

from common.db.engine import Database
from common.db.tables import agent_blocks, block_tags
from common.errors import NotFound
from common.ids import Prefix, new_id
from services.agents import store as agents_store
from services.agents.model import Agent, AgentSpec
from services.blocks import store
from services.blocks.model import Block, BlockFilter, BlockSpec
from tests.helpers.database import DatabaseFactory, fresh_database

NOW = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)
ORG, OTHER = "org-1", "org-2"


@pytest.fixture
async def db(databases: DatabaseFactory) -> AsyncIterator[Database]:
    async with fresh_database(databases) as made:
        yield made


def make_block(label: str = "human", *, age: int = 0, org: str = ORG, tags: tuple[str, ...] = (), **spec: Any) -> Block:
    value = spec.pop("value", "")
    moment = NOW - timedelta(microseconds=age)
    return Block(new_id(Prefix.BLOCK), org, label, value, BlockSpec(**spec), tags, 1, moment, moment)


def make_agent(*blocks: Block) -> Agent:
    return Agent(
        id=new_id(Prefix.AGENT),
        organization_id=ORG,
        name="Ada",
        spec=AgentSpec(),
        tags=("t",),
        default_conversation_id=new_id(Prefix.CONVERSATION),
        version=1,
        created_at=NOW,
        updated_at=NOW,
        block_ids=tuple(block.id for block in blocks),
    )


async def add(db: Database, *blocks: Block) -> None:
    for block in blocks:
        await db.write(store.insert, block)


async def add_agent(db: Database, *blocks: Block) -> Agent:
    agent = make_agent(*blocks)
    await db.write(agents_store.insert, agent)
    return agent


async def listed(db: Database, size: int = 100, token: str = "", **conditions: Any) -> tuple[list[Block], str]:
    return await db.read(store.list_page, ORG, BlockFilter(**conditions), size=size, token=token)


def count(conn: Connection, table: Any) -> int:
    number: int = conn.execute(select(func.count()).select_from(table)).scalar_one()
    return number


async def test_what_is_stored_comes_back(db: Database) -> None:
    block = make_block(
        value="☕\n\ttea", tags=("a", "b"), limit=7, description="d", read_only=True, metadata={"n": [1]}
    )
    await add(db, block)
    assert await db.read(store.get, ORG, block.id) == block
    assert await db.write(store.lock, ORG, block.id) == block
    changed = replace(block, label="persona", value="x", tags=("c",), spec=BlockSpec(), version=2)
    await db.write(store.replace, block, changed)
    assert await db.read(store.get, ORG, block.id) == changed


async def test_other_organizations_see_nothing(db: Database) -> None:
    block = make_block(org=OTHER, tags=("a",))
    await add(db, block)
    for read in (store.get, store.lock):
        with pytest.raises(NotFound):
            await db.write(read, ORG, block.id)
    with pytest.raises(NotFound):
        await db.write(store.lock_several, ORG, [block.id])
    assert await listed(db) == ([], "")
    assert await listed(db, tags=("a",)) == ([], "")


async def test_several_are_locked_in_the_order_asked_for(db: Database) -> None:
    blocks = [make_block(str(n), tags=(str(n),)) for n in range(5)]
    await add(db, *blocks)
    backwards = blocks[::-1]
    assert await db.write(store.lock_several, ORG, [block.id for block in backwards]) == backwards
    assert await db.write(store.lock_several, ORG, []) == []
    missing = new_id(Prefix.BLOCK)
    with pytest.raises(NotFound, match=missing):
        await db.write(store.lock_several, ORG, [blocks[0].id, missing])


async def test_pages_by_age_or_by_place(db: Database) -> None:
    blocks = [make_block(str(n), age=n, tags=("x",) if n % 2 else ("x", "y")) for n in range(5)]
    await add(db, *blocks)
    oldest_first = blocks[::-1]
    first, token = await listed(db, 3)
    assert first == oldest_first[:3]
    assert await listed(db, 3, token) == (oldest_first[3:], "")
    assert (await listed(db, tags=("x", "y")))[0] == [blocks[4], blocks[2], blocks[0]]
    agent = await add_agent(db, blocks[1], blocks[4], blocks[0])
    first, token = await listed(db, 2, agent_id=agent.id)
    assert first == [blocks[1], blocks[4]]
    assert await listed(db, 2, token, agent_id=agent.id) == ([blocks[0]], "")
    assert (await listed(db, agent_id=agent.id, label="4"))[0] == [blocks[4]]


async def test_an_agent_has_its_blocks_in_order(db: Database) -> None:
    a, b, c = (make_block(label) for label in "abc")
    await add(db, a, b, c)
    agent = await add_agent(db, c, a)
    assert await db.read(agents_store.get, ORG, agent.id) == agent
    assert await db.read(store.of_agent, agent.id) == [c, a]
    changed = replace(agent, block_ids=(b.id, a.id, c.id))
    await db.write(agents_store.replace, agent, changed)
    assert await db.read(agents_store.get, ORG, agent.id) == changed
    assert await db.read(store.of_agent, agent.id) == [b, a, c]


async def test_one_is_found_by_its_label_among_an_agent_s(db: Database) -> None:
    mine, loose = make_block("human", tags=("t",)), make_block("human")
    await add(db, mine, loose)
    agent = await add_agent(db, mine)
    assert await db.write(store.lock_labelled, ORG, agent.id, "human") == mine
    assert await db.write(store.lock_labelled, ORG, agent.id, "Human") is None
    assert await db.write(store.lock_labelled, OTHER, agent.id, "human") is None
    assert await db.write(store.namesake, [agent.id], "human", loose.id) == (agent.id, mine.id)
    assert await db.write(store.namesake, [agent.id], "human", mine.id) is None
    assert await db.write(store.namesake, [], "human", loose.id) is None
    assert await db.write(store.lock_agents, mine.id) == [agent.id]
    assert await db.write(store.lock_agents, loose.id) == []


async def test_deleting_leaves_nothing_behind_and_changes_the_agents(db: Database) -> None:
    block, kept = make_block("a", tags=("x",)), make_block("b", tags=("y",))
    await add(db, block, kept)
    agent, stranger = await add_agent(db, block, kept), await add_agent(db, kept)
    later = NOW + timedelta(seconds=1)
    await db.write(store.delete, block.id, later)
    left = await db.read(agents_store.get, ORG, agent.id)
    assert (left.block_ids, left.version, left.updated_at) == ((kept.id,), 2, later)
    assert await db.read(agents_store.get, ORG, stranger.id) == stranger
    assert await db.read(count, block_tags) == 1
    await db.write(agents_store.delete, agent.id)
    assert await db.read(count, agent_blocks) == 1
    assert await db.read(store.get, ORG, kept.id) == kept


async def test_edits_under_the_lock_are_serial(db: Database) -> None:
    block = make_block("notes")
    await add(db, block)
    agent = await add_agent(db, block)

    def append(conn: Connection, text: str) -> None:
        current = store.lock_labelled(conn, ORG, agent.id, "notes")
        assert current is not None
        store.replace(conn, current, replace(current, value=current.value + text, version=current.version + 1))

    await asyncio.gather(*(db.write(append, letter) for letter in "abcdefgh"))
    final = await db.read(store.get, ORG, block.id)
    assert (sorted(final.value), final.version) == (list("abcdefgh"), 9)
