"""What an agent does to its own memory, through runs of a real server."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import select

from common.clock import SystemClock
from common.db.tables import messages
from common.ids import DEFAULT_ORGANIZATION
from common.pb.bridle.v1.message_pb2 import ToolReturn
from services.messages.model import Outcome, ToolCall
from services.tools.api import ToolContext
from services.tools.functions import FunctionTools
from services.tools.memory import MEMORY_TOOLS, memory_tools
from tests.helpers.inprocess import AgentClient, Run, World, return_text, returns_of
from tests.helpers.models import call, calls, say
from tests.rpc.blocks.rig import Block, Blocks

NAMES = [tool.name for tool in MEMORY_TOOLS]
ID = "tool-0b1d1e00-0000-4000-8000-00000000000"


@pytest.fixture
async def human(blocks: Blocks) -> Block:
    return await blocks.create("human", value="Name: Ada\nLikes: tea", limit=60)


@pytest.fixture
async def agent(world: World, human: Block) -> AgentClient:
    return await world.make_agent(NAMES, block_ids=[human.id])


async def use(agent: AgentClient, name: str, **arguments: Any) -> tuple[bool, str]:
    """Whether the call succeeded, and what the model is told."""
    agent.model.will(call(name, **arguments), say("done"))
    sent = await agent.send("go on")
    assert sent.run.state == Run.STATE_COMPLETED
    (returned,) = returns_of(sent.messages)
    return returned.outcome == ToolReturn.OUTCOME_SUCCEEDED, return_text(returned)


async def refusal(agent: AgentClient, name: str, **arguments: Any) -> str:
    succeeded, text = await use(agent, name, **arguments)
    assert not succeeded
    assert text.startswith("Error: ")
    return text.removeprefix("Error: ")


def test_names_and_ids_are_fixed() -> None:
    assert [(tool.id, tool.name) for tool in MEMORY_TOOLS] == [
        (f"{ID}4", "memory_insert"),
        (f"{ID}5", "memory_replace"),
        (f"{ID}6", "memory_rethink"),
        (f"{ID}7", "conversation_search"),
    ]
    assert {tool.name: list(tool.parameters["properties"]) for tool in MEMORY_TOOLS} == {
        "memory_insert": ["label", "new_str", "insert_line"],
        "memory_replace": ["label", "old_str", "new_str"],
        "memory_rethink": ["label", "new_memory"],
        "conversation_search": ["query", "roles", "limit", "start_date", "end_date"],
    }


async def test_edits_are_stored_and_shown_in_the_next_turn(agent: AgentClient, blocks: Blocks, human: Block) -> None:
    done = await use(agent, "memory_insert", label="human", new_str="Age: 36")
    assert done == (True, "The memory block 'human' was changed. It has 28 of 60 characters now.")
    await use(agent, "memory_insert", label="human", new_str="Top", insert_line=0)
    await use(agent, "memory_insert", label="human", new_str="Mid", insert_line=2)
    await use(agent, "memory_replace", label="human", old_str="tea", new_str="mate")
    block = await blocks.get(human.id)
    assert block.value == "Top\nName: Ada\nMid\nLikes: mate\nAge: 36"
    assert block.etag == "v5"
    first, second = (made.request.system for made in agent.model.calls[-2:])
    assert "Likes: tea" in first
    assert f"<value>\n{block.value}\n</value>" in second
    await use(agent, "memory_rethink", label="human", new_memory="Ada")
    assert (await blocks.get(human.id)).value == "Ada"


async def test_what_cannot_be_done_is_told_in_clear_words(
    agent: AgentClient, world: World, blocks: Blocks, human: Block
) -> None:
    fixed = await blocks.create("rules", value="Be kind.", read_only=True)
    await blocks.attach(agent.id, fixed.id)
    assert await refusal(agent, "memory_insert", label="hunan", new_str="x") == (
        "there is no memory block 'hunan'; there are: human, rules"
    )
    for name, arguments in (
        ("memory_insert", {"new_str": "x"}),
        ("memory_replace", {"old_str": "Be", "new_str": "x"}),
        ("memory_rethink", {"new_memory": "x"}),
    ):
        assert await refusal(agent, name, label="rules", **arguments) == "the memory block 'rules' is read-only"
    assert "61 characters, and its limit is 60" in await refusal(
        agent, "memory_rethink", label="human", new_memory="x" * 61
    )
    assert "was not found" in await refusal(agent, "memory_replace", label="human", old_str="TEA", new_str="x")
    twice = await refusal(agent, "memory_replace", label="human", old_str=": ", new_str="x")
    assert "occurs 2 times, on lines 1, 2" in twice
    assert "has 2 lines" in await refusal(agent, "memory_insert", label="human", new_str="x", insert_line=3)
    assert await refusal(agent, "memory_insert", label="human") == "new_str is required and must be a text"
    assert "whole number" in await refusal(agent, "memory_insert", label="human", new_str="x", insert_line="1")
    for text in ("\0", "\ud800"):
        assert "cannot be stored" in await refusal(agent, "memory_rethink", label="human", new_memory=text)
    assert "cannot be stored" in await refusal(agent, "memory_rethink", label="\0", new_memory="x")
    assert [await blocks.get(block.id) for block in (human, fixed)] == [human, fixed]
    nothing = await world.make_agent(NAMES)
    assert "there are none" in await refusal(nothing, "memory_rethink", label="human", new_memory="x")


async def test_a_block_of_another_agent_cannot_be_changed(world: World, blocks: Blocks, human: Block) -> None:
    stranger = await world.make_agent(NAMES, block_ids=[(await blocks.create("own")).id])
    assert "no memory block 'human'" in await refusal(stranger, "memory_rethink", label="human", new_memory="x")
    assert await blocks.get(human.id) == human


async def test_edits_of_a_shared_block_at_once_lose_nothing(world: World, blocks: Blocks) -> None:
    shared = await blocks.create("notes")
    crew = [await world.make_agent(NAMES, block_ids=[shared.id]) for _ in range(4)]
    for number, agent in enumerate(crew):
        notes = [("memory_insert", "", {"label": "notes", "new_str": f"{number}.{n}"}) for n in range(5)]
        agent.model.will(calls(*notes), say("done"))
    await asyncio.gather(*(agent.send("write") for agent in crew))
    written = (await blocks.get(shared.id)).value.split("\n")
    assert sorted(written) == [f"{number}.{n}" for number in range(4) for n in range(5)]
    for number in range(4):
        mine = [line for line in written if line.startswith(f"{number}.")]
        assert mine == [f"{number}.{n}" for n in range(5)], "the edits of one turn are made in its order"


async def test_a_call_that_is_made_again_after_a_crash_takes_effect_once(
    agent: AgentClient, world: World, blocks: Blocks, human: Block
) -> None:
    tools = FunctionTools(memory_tools(world.node.db, SystemClock()))
    context = ToolContext(DEFAULT_ORGANIZATION, agent.id, "run-1", "call-1", lambda _: None)
    made = ToolCall("call-1", "memory_insert", '{"label": "human", "new_str": "once"}')
    for _ in range(2):
        assert (await tools.run(MEMORY_TOOLS[0], made, context)).outcome is Outcome.SUCCEEDED
    assert (await blocks.get(human.id)).value.count("once") == 1
    await tools.run(MEMORY_TOOLS[0], made, replace(context, call_id="call-2"))
    assert (await blocks.get(human.id)).value.count("once") == 2


# --- searching --------------------------------------------------------------------------------------------------------


async def test_it_finds_what_was_said_in_this_conversation_newest_first(agent: AgentClient, world: World) -> None:
    agent.model.will(say("The Capital of France is Paris."), say("Rome."))
    await agent.send("What is the capital of FRANCE?")
    await agent.send("And of Italy?")
    other = await world.make_agent(NAMES)
    await other.send("the capital of france, elsewhere")
    succeeded, text = await use(agent, "conversation_search", query="france capital")
    assert succeeded
    found = [line.partition("] ")[2] for line in text.split("\n\n")]
    assert found == ["assistant: The Capital of France is Paris.", "user: What is the capital of FRANCE?"]
    _, text = await use(agent, "conversation_search", query="france", limit=1)
    assert len(text.split("\n\n")) == 1
    _, text = await use(agent, "conversation_search", query="france", roles=["user"])
    assert "Paris" not in text
    assert (await use(agent, "conversation_search", query="100%"))[1] == "Nothing was found for '100%'."


async def test_findings_are_not_found_unless_tools_are_asked_for(agent: AgentClient) -> None:
    await agent.send("a secret word: xyzzy")
    for _ in range(2):
        _, text = await use(agent, "conversation_search", query="xyzzy")
        assert text.count("xyzzy") == 1
    _, text = await use(agent, "conversation_search", query="xyzzy", roles=["tool"], limit=10)
    assert text.count("tool: ") == 2


async def test_dates_are_days_or_minutes_of_the_agents_zone(world: World) -> None:
    agent = await world.make_agent(NAMES, timezone="Asia/Tokyo")
    await agent.send("needle")
    when = await world.node.db.read(
        lambda conn: conn.execute(
            select(messages.c.created_at).where(messages.c.agent_id == agent.id).order_by(messages.c.seq).limit(1)
        ).scalar_one()
    )
    local = when + timedelta(hours=9)
    today, minute = local.date().isoformat(), local.isoformat()[:16]
    yesterday, tomorrow = (
        (local.date() - timedelta(days=1)).isoformat(),
        (local.date() + timedelta(days=1)).isoformat(),
    )
    found: list[dict[str, Any]] = [
        {"start_date": today, "end_date": today},
        {"start_date": minute, "end_date": minute},
        {"start_date": None, "end_date": ""},
        {"end_date": f"{when.isoformat()[:16]}+00:00"},
    ]
    for dates in found:
        assert "needle" in (await use(agent, "conversation_search", query="needle", roles=["user"], **dates))[1], dates
    for dates in ({"end_date": yesterday}, {"start_date": tomorrow}):
        text = (await use(agent, "conversation_search", query="needle", roles=["user"], **dates))[1]
        assert text.startswith("Nothing"), dates


async def test_a_search_that_means_nothing_is_refused(agent: AgentClient) -> None:
    search = "conversation_search"
    assert "query is required" in await refusal(agent, search)
    assert "query must be words" in await refusal(agent, search, query=" ")
    assert "query must be words" in await refusal(agent, search, query="x" * 1001)
    assert "limit must be 1 to 100" in await refusal(agent, search, query="x", limit=0)
    assert "roles must be" in await refusal(agent, search, query="x", roles=["system"])
    assert "roles must be" in await refusal(agent, search, query="x", roles="user")
    assert "start_date must be" in await refusal(agent, search, query="x", start_date="yesterday")
    assert "end_date must be" in await refusal(agent, search, query="x", end_date=7)
    assert "end_date must be" in await refusal(agent, search, query="x", end_date="9999-12-31")


async def test_a_long_message_is_shown_cut(agent: AgentClient) -> None:
    await agent.send("needle " + "x" * 5000)
    _, text = await use(agent, "conversation_search", query="needle", roles=["user"])
    assert "needle xxx" in text
    assert text.endswith("... [3,007 more characters]")
