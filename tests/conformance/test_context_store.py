"""What is in a context: the summary, and the log from the floor; and that nothing below it is read."""

from sqlalchemy import Connection, insert, text, update

from common.db.engine import Database
from common.db.tables import conversations, messages
from common.ids import Prefix, new_id
from services.agents.model import Agent
from services.messages import store
from services.messages.model import Body, Role, Text
from services.messages.store import MessageFilter, context, list_messages
from services.runs.store import rows
from tests.conformance.test_runs_store import NOW, ORG, make_agent


def fill(conn: Connection, agent: Agent, said: list[Role], floor: int, summary: int | None = None) -> list[str]:
    """A log of these roles, from position 1; the ids of its messages."""
    ids = [new_id(Prefix.MESSAGE) for _ in said]
    conn.execute(
        insert(messages),
        [
            {
                "id": ids[seq - 1],
                "organization_id": ORG,
                "agent_id": agent.id,
                "conversation_id": agent.default_conversation_id,
                "seq": seq,
                "role": role,
                "body": rows.BODY.encode(Body((Text(str(seq)),))),
                "created_at": NOW,
            }
            for seq, role in enumerate(said, 1)
        ],
    )
    mine = update(conversations).where(conversations.c.id == agent.default_conversation_id)
    conn.execute(
        mine.values(
            context_floor=floor,
            summary_message_id=None if summary is None else ids[summary - 1],
            next_message_seq=len(said) + 1,
        )
    )
    return ids


async def test_the_summary_comes_first_and_older_ones_not_at_all(db: Database) -> None:
    agent = await make_agent(db)
    said = [Role.USER, Role.ASSISTANT, Role.SUMMARY, Role.USER, Role.ASSISTANT, Role.SUMMARY, Role.APPROVAL, Role.USER]
    await db.write(fill, agent, said, 4, 6)

    found = await db.read(context, agent.default_conversation_id)

    assert [(entry.seq, entry.role) for entry in found] == [
        (6, Role.SUMMARY),
        (4, Role.USER),
        (5, Role.ASSISTANT),
        (7, Role.APPROVAL),
        (8, Role.USER),
    ]
    assert found[0].body.parts == (Text("6"),)


async def test_a_summary_below_the_floor_is_found_too(db: Database) -> None:
    agent = await make_agent(db)
    await db.write(fill, agent, [Role.USER, Role.SUMMARY, Role.USER, Role.ASSISTANT], 4, 2)
    assert [entry.seq for entry in await db.read(context, agent.default_conversation_id)] == [2, 4]


async def test_without_a_summary_it_is_the_log_from_the_floor(db: Database) -> None:
    agent = await make_agent(db)
    await db.write(fill, agent, [Role.USER, Role.ASSISTANT, Role.SYSTEM, Role.USER], 3)
    assert [entry.seq for entry in await db.read(context, agent.default_conversation_id)] == [3, 4]


async def test_a_list_of_what_is_in_context_is_the_same(db: Database) -> None:
    agent = await make_agent(db)
    said = [Role.USER, Role.ASSISTANT, Role.SUMMARY, Role.USER, Role.ASSISTANT, Role.SUMMARY, Role.USER]
    ids = await db.write(fill, agent, said, 4, 6)
    which = MessageFilter(ORG, conversation_id=agent.default_conversation_id, in_context=True)
    listed, _ = await db.read(list_messages, which, 100, "")
    assert [message.id for message in listed] == ids[3:]
    assert sorted(message.id for message in listed) == sorted(
        entry.id for entry in await db.read(context, agent.default_conversation_id)
    )


async def test_what_lies_below_the_floor_is_not_read(db: Database) -> None:
    agent = await make_agent(db)
    await db.write(fill, agent, [Role.USER] * 3_000, 2_990, 5)
    assert len(await db.read(context, agent.default_conversation_id)) == 12
    assert await db.write(_reads_ranges, agent)


def _reads_ranges(conn: Connection, agent: Agent) -> bool:
    """Whether the database goes by indexes to the summary and to the floor."""
    query = store._CONTEXT.params(conversation_id=agent.default_conversation_id)  # noqa: SLF001 - its plan is the point
    statement = str(query.compile(conn, compile_kwargs={"literal_binds": True}))
    if conn.dialect.name == "sqlite":
        plan = [str(row.detail) for row in conn.execute(text(f"EXPLAIN QUERY PLAN {statement}"))]
        read = [line for line in plan if " messages " in line]
        return len(read) == 2 and all("SEARCH" in line for line in read) and any("seq>?" in line for line in read)
    conn.execute(text("ANALYZE messages"))
    plan = [str(row[0]) for row in conn.execute(text(f"EXPLAIN (COSTS OFF) {statement}"))]
    return not any("Seq Scan on messages" in line for line in plan) and any("seq >=" in line for line in plan)
