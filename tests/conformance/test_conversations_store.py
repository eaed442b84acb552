"""The store of conversations does the same on SQLite and on Postgres."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from sqlalchemy import BigInteger, Connection, select

from common.db.engine import Database
from common.db.tables import conversations, messages, runs
from common.errors import NotFound
from common.ids import Prefix, new_id
from services.agents import store as agents_store
from services.agents.model import Agent, AgentSpec, ModelSettings
from services.conversations import store
from services.conversations.fork import fork
from services.conversations.model import Conversation, ConversationSpec
from services.messages.model import Body, Outcome, Part, Text, ToolCall, ToolReturn

NOW = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)
ORG = "org-1"


async def add_agent(db: Database) -> Agent:
    agent = Agent(
        id=new_id(Prefix.AGENT),
        organization_id=ORG,
        name="Ada",
        spec=AgentSpec(),
        tags=(),
        default_conversation_id=new_id(Prefix.CONVERSATION),
        version=1,
        created_at=NOW,
        updated_at=NOW,
    )
    await db.write(agents_store.insert, agent)
    return agent


async def add(db: Database, agent: Agent, *, age: int = 0, **spec: Any) -> Conversation:
    moment = NOW - timedelta(microseconds=age)
    conversation = Conversation(
        id=new_id(Prefix.CONVERSATION),
        organization_id=ORG,
        agent_id=agent.id,
        spec=ConversationSpec(**spec),
        is_default=False,
        context_floor=0,
        summary_message_id="",
        next_message_seq=1,
        last_message_at=None,
        version=1,
        created_at=moment,
        updated_at=moment,
    )
    await db.write(store.insert, conversation)
    return conversation


def insert_run(conn: Connection, conversation: Conversation, state: str, no: int = 1) -> str:
    counters = {column.name: 0 for column in runs.c if isinstance(column.type, BigInteger) and not column.nullable}
    run_id = new_id(Prefix.RUN)
    conn.execute(
        runs.insert().values(
            **{**counters, "no": no},
            id=run_id,
            organization_id=ORG,
            agent_id=conversation.agent_id,
            conversation_id=conversation.id,
            state=state,
            request="{}",
            background=False,
            outcome="{}",
            created_at=NOW,
            updated_at=NOW,
        )
    )
    return run_id


def say(conn: Connection, conversation: Conversation, run_id: str, *said: tuple[str, Part]) -> Conversation:
    """Add messages as a checkpoint does; the conversation as it is then."""
    first = conversation.next_message_seq
    for seq, (role, part) in enumerate(said, first):
        conn.execute(
            messages.insert().values(
                id=new_id(Prefix.MESSAGE),
                organization_id=ORG,
                agent_id=conversation.agent_id,
                conversation_id=conversation.id,
                seq=seq,
                run_id=run_id,
                step_id=new_id(Prefix.STEP),
                role=role,
                body=msgspec.json.encode(Body((part,))).decode(),
                created_at=NOW + timedelta(seconds=seq),
            )
        )
    taken = first + len(said)
    last = NOW + timedelta(seconds=taken - 1)
    mine = conversations.update().where(conversations.c.id == conversation.id)
    conn.execute(mine.values(next_message_seq=taken, last_message_at=last))
    return replace(conversation, next_message_seq=taken, last_message_at=last)


def copy(conn: Connection, conversation_id: str) -> Conversation:
    return fork(conn, store.lock(conn, ORG, conversation_id), new_id, LATER)


def log(conn: Connection, conversation_id: str) -> list[tuple[Any, ...]]:
    mine = messages.c.conversation_id == conversation_id
    columns = (messages.c.seq, messages.c.role, messages.c.body, messages.c.created_at)
    return [tuple(row) for row in conn.execute(select(*columns).where(mine).order_by(messages.c.seq))]


async def test_what_goes_in_comes_out(db: Database) -> None:
    agent = await add_agent(db)
    settings = ModelSettings(temperature=0.0, response_schema={"type": "object"})
    made = await add(db, agent, summary="ünïcode", model="demo/echo", model_settings=settings)
    assert await db.read(store.get, ORG, made.id) == made
    assert await db.read(store.spec_of, made.id) == made.spec


async def test_the_agents_first_conversation_is_its_default(db: Database) -> None:
    agent = await add_agent(db)
    found = await db.read(store.get, ORG, agent.default_conversation_id)
    assert (found.is_default, found.agent_id, found.spec) == (True, agent.id, ConversationSpec())


async def test_a_conversation_is_found_only_in_its_organization(db: Database) -> None:
    made = await add(db, await add_agent(db))
    for find in (store.get, store.lock):
        with pytest.raises(NotFound):
            await db.write(find, "org-2", made.id)
    assert await db.read(store.list_page, "org-2", "", size=10, token="") == ([], "")


async def test_replacing_writes_everything_that_can_change(db: Database) -> None:
    made = await add(db, await add_agent(db), summary="a")
    changed = replace(made, spec=ConversationSpec(summary="b"), context_floor=3, version=2, updated_at=LATER)
    await db.write(store.replace, changed)
    assert await db.read(store.get, ORG, made.id) == changed


async def test_what_is_deleted_is_found_by_nobody(db: Database) -> None:
    agent = await add_agent(db)
    made = await add(db, agent)
    await db.write(store.delete, replace(made, version=2, updated_at=LATER))
    for find in (store.get, store.lock):
        with pytest.raises(NotFound):
            await db.write(find, ORG, made.id)
    found, _ = await db.read(store.list_page, ORG, agent.id, size=10, token="")
    assert [each.id for each in found] == [agent.default_conversation_id]


async def test_conversations_of_one_moment_are_ordered_by_id(db: Database) -> None:
    agent, other = await add_agent(db), await add_agent(db)
    made = [await add(db, agent, age=1 + number // 3) for number in range(7)]
    await add(db, other)
    seen: list[Conversation] = []
    token = ""
    while True:
        page, token = await db.read(store.list_page, ORG, agent.id, size=2, token=token)
        seen += page
        if not token:
            break
    assert seen[0].is_default
    assert seen[1:] == sorted(made, key=lambda each: (each.created_at, each.id), reverse=True)


async def test_the_first_open_run_is_named(db: Database) -> None:
    agent = await add_agent(db)
    made, idle = await add(db, agent), await add(db, agent)
    await db.write(insert_run, made, "completed", 1)
    assert await db.read(store.open_run, made.id) is None
    later = await db.write(insert_run, made, "queued", 3)
    assert await db.read(store.open_run, made.id) == later
    first = await db.write(insert_run, made, "awaiting_approval", 2)
    assert await db.read(store.open_run, made.id) == first
    assert await db.read(store.open_run, idle.id) is None


async def test_a_locked_conversation_waits_for_the_transaction_that_changes_it(db: Database) -> None:
    made = await add(db, await add_agent(db))

    def bump(conn: Connection) -> None:
        current = store.lock(conn, ORG, made.id)
        store.replace(conn, replace(current, version=current.version + 1))

    await asyncio.gather(*(db.write(bump) for _ in range(20)))
    assert (await db.read(store.get, ORG, made.id)).version == 21


async def test_whoever_waited_for_a_deletion_finds_nothing(db: Database) -> None:
    made = await add(db, await add_agent(db))

    def delete(conn: Connection) -> None:
        store.delete(conn, store.lock(conn, ORG, made.id))

    results = await asyncio.gather(*(db.write(delete) for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in results if each is not None] == [NotFound] * 4


async def test_a_long_log_is_copied_whole(db: Database) -> None:
    made = await add(db, await add_agent(db), summary="long")
    run_id = await db.write(insert_run, made, "completed")
    said = [("user", Text(f"{number}")) for number in range(1203)]
    source = await db.write(say, made, run_id, *said)
    made = await db.write(copy, made.id)
    assert await db.read(store.get, ORG, made.id) == made
    assert (made.next_message_seq, made.last_message_at) == (1204, source.last_message_at)
    assert await db.read(log, made.id) == await db.read(log, source.id)


async def test_a_copy_ends_before_the_first_call_without_a_return(db: Database) -> None:
    made = await add(db, await add_agent(db))
    run_id = await db.write(insert_run, made, "running")
    await db.write(
        say,
        made,
        run_id,
        ("user", Text("go")),
        ("assistant", ToolCall("c-1", "t", "{}")),
        ("tool", ToolReturn("c-1", "t", Outcome.SUCCEEDED)),
        ("assistant", ToolCall("c-2", "t", "{}")),
        ("assistant", ToolCall("c-3", "t", "{}")),
        ("tool", ToolReturn("c-3", "t", Outcome.SUCCEEDED)),
    )
    made = await db.write(copy, made.id)
    assert (made.next_message_seq, made.last_message_at) == (4, NOW + timedelta(seconds=3))
    assert [role for _, role, *_ in await db.read(log, made.id)] == ["user", "assistant", "tool"]


async def test_copying_races_with_the_deletion_of_the_agent(db: Database) -> None:
    for _ in range(5):
        agent = await add_agent(db)
        made = await add(db, agent)

        def delete(conn: Connection, agent_id: str = agent.id) -> None:
            agents_store.lock(conn, ORG, agent_id)
            agents_store.delete(conn, agent_id)

        copied, deleted = await asyncio.gather(db.write(copy, made.id), db.write(delete), return_exceptions=True)
        assert deleted is None
        assert isinstance(copied, Conversation | NotFound)
        assert await db.read(store.list_page, ORG, agent.id, size=10, token="") == ([], "")
