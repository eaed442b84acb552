"""The store of agents does the same on SQLite and on Postgres."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import BigInteger, Connection, Table, func, select

from common.db.engine import Database
from common.db.tables import agent_tags, conversations, runs
from common.errors import NotFound
from common.ids import Prefix, new_id
from services.agents import store
from services.agents.model import Agent, AgentFilter, AgentSpec, Conditional, MaxCount, ModelSettings, RunFirst

NOW = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)
ORG = "org-1"


def make_agent(name: str = "Ada", *, tags: tuple[str, ...] = (), age: int = 0, **spec: Any) -> Agent:
    moment = NOW - timedelta(microseconds=age)
    return Agent(
        id=new_id(Prefix.AGENT),
        organization_id=ORG,
        name=name,
        spec=AgentSpec(**spec),
        tags=tags,
        default_conversation_id=new_id(Prefix.CONVERSATION),
        version=1,
        created_at=moment,
        updated_at=moment,
    )


async def add(db: Database, *agents: Agent) -> None:
    for agent in agents:
        await db.write(store.insert, agent)


async def names(db: Database, **conditions: Any) -> list[str]:
    wanted = AgentFilter(**conditions)
    found, _ = await db.read(store.list_page, ORG, wanted, newest_first=True, size=100, token="")
    assert await db.read(store.count, ORG, wanted) == len(found)
    return [agent.name for agent in found]


def insert_run(conn: Connection, agent: Agent, state: str) -> str:
    counters = {column.name: 0 for column in runs.c if isinstance(column.type, BigInteger) and not column.nullable}
    run_id = new_id(Prefix.RUN)
    conn.execute(
        runs.insert().values(
            **{**counters, "no": count_rows(conn, runs)},
            id=run_id,
            organization_id=ORG,
            agent_id=agent.id,
            conversation_id=agent.default_conversation_id,
            state=state,
            request="{}",
            background=False,
            outcome="{}",
            created_at=NOW,
            updated_at=NOW,
        )
    )
    return run_id


def count_rows(conn: Connection, table: Table) -> int:
    return conn.execute(select(func.count()).select_from(table)).scalar_one()


async def test_what_goes_in_comes_out(db: Database) -> None:
    agent = make_agent(
        tags=("a", "b", "Ö"),
        description="ünïcode",
        system="\0",
        model_settings=ModelSettings(temperature=0.0, response_schema={"type": "object"}),
        metadata={"whole": 1, "half": 0.5, "list": [None, True, {"x": "\0"}]},
        tool_rules=(RunFirst("t", args={}), Conditional("t", child_output_mapping={"1": "u"}), MaxCount("t", limit=2)),
        approval_ttl=0.5,
    )
    await add(db, agent)
    assert await db.read(store.get, ORG, agent.id) == agent


async def test_an_agent_is_found_only_in_its_organization(db: Database) -> None:
    agent = make_agent(tags=("x",))
    await add(db, agent)
    for find in (store.get, store.lock):
        with pytest.raises(NotFound):
            await db.write(find, "org-2", agent.id)
    assert await db.read(store.count, "org-2", AgentFilter(include_hidden=True)) == 0
    assert await db.read(store.tags_page, "org-2", "", size=10, token="") == ([], "")


async def test_replacing_writes_everything_that_can_change(db: Database) -> None:
    agent = make_agent(tags=("a", "b"))
    await add(db, agent)
    later = NOW + timedelta(seconds=1)
    changed = replace(
        agent, name="Bea", tags=("b", "c"), spec=AgentSpec(system="s", hidden=True), version=2, updated_at=later
    )
    await db.write(store.replace, agent, changed)
    assert await db.read(store.get, ORG, agent.id) == changed
    assert await names(db) == []
    assert await names(db, tags=("c",), include_hidden=True) == ["Bea"]


async def test_agents_of_one_moment_are_ordered_by_id(db: Database) -> None:
    made = [make_agent(age=number // 3) for number in range(9)]
    await add(db, *made)
    expected = [each.id for each in sorted(made, key=lambda each: (each.created_at, each.id))]
    for newest_first in (False, True):
        seen: list[str] = []
        token = ""
        while True:
            page, token = await db.read(
                store.list_page, ORG, AgentFilter(), newest_first=newest_first, size=2, token=token
            )
            seen += [agent.id for agent in page]
            if not token:
                break
        assert seen == (expected[::-1] if newest_first else expected)


@pytest.mark.parametrize(
    ("query", "found"),
    [("STRASSE", True), ("straße", True), ("ÉCLAIR", True), ("100%", True), ("1_0", False), ("%", True), ("\\", True)],
)
async def test_a_query_ignores_case_and_has_no_wildcards(db: Database, query: str, found: bool) -> None:
    await add(db, make_agent("Straße éclair", description="100% \\"), make_agent("other", description="120"))
    assert await names(db, query=query) == (["Straße éclair"] if found else [])


async def test_the_oldest_live_run_is_named(db: Database) -> None:
    agent, idle = make_agent(), make_agent()
    await add(db, agent, idle)
    await db.write(insert_run, agent, "completed")
    assert await db.read(store.live_run, agent.id) is None
    run_id = await db.write(insert_run, agent, "queued")
    assert await db.read(store.live_run, agent.id) == run_id
    assert await db.read(store.live_run, idle.id) is None


async def test_deleting_takes_everything_along(db: Database) -> None:
    agent = make_agent(tags=("x",))
    await add(db, agent)
    await db.write(insert_run, agent, "running")
    await db.write(store.delete, agent.id)
    for table in (agent_tags, conversations, runs):
        assert await db.read(count_rows, table) == 0


async def test_a_locked_agent_waits_for_the_transaction_that_changes_it(db: Database) -> None:
    agent = make_agent()
    await add(db, agent)

    def bump(conn: Connection) -> None:
        current = store.lock(conn, ORG, agent.id)
        store.replace(conn, current, replace(current, version=current.version + 1))

    await asyncio.gather(*(db.write(bump) for _ in range(20)))
    assert (await db.read(store.get, ORG, agent.id)).version == 21
