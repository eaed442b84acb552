"""What the model would be shown, in every state of a conversation."""

import json
from typing import Any

import msgspec
import pytest
from sqlalchemy import update

from common.db import tables
from common.ids import Prefix, new_id
from common.pb.bridle.v1 import block_pb2, block_service_pb2, conversation_pb2, tool_pb2
from common.pb.bridle.v1 import conversation_service_pb2 as api
from services.messages.model import Body, Role, Text
from services.models import tokens
from tests.helpers.inprocess import AgentClient, Rule, World, approve, deny, invalid, not_found, roles
from tests.helpers.models import Gate, ProbeTool, call, say
from tests.rpc.conversations.rig import Conversations

Overview = conversation_pb2.ContextOverview
Kind = Overview.Section.Kind


async def overview(agent: AgentClient, conversation_id: str = "") -> Overview:
    request = api.GetContextRequest(conversation_id=conversation_id or agent.conversation_id)
    found: Overview = await agent.world.conversations.GetContext(request, timeout=10)
    assert found.tokens == sum(section.tokens for section in found.sections)
    assert found.message_count == len(found.message_ids)
    if not conversation_id:
        # The list goes by position, and a summary is younger than what it is shown before.
        listed = [message.id for message in await agent.log(in_context=True)]
        assert sorted(listed) == sorted(found.message_ids)
    return found


def section(found: Overview, kind: Kind.ValueType) -> Overview.Section | None:
    return next((each for each in found.sections if each.kind == kind), None)


def kinds(found: Overview) -> list[str]:
    return [Kind.Name(each.kind).removeprefix("KIND_").lower() for each in found.sections]


def tool_names(found: Overview) -> list[str]:
    tools = section(found, Kind.KIND_TOOLS)
    return [each["function"]["name"] for each in json.loads(tools.text)] if tools else []


async def attach(world: World, agent: AgentClient, label: str, value: str) -> str:
    made = block_service_pb2.CreateBlockRequest(block=block_pb2.Block(label=label, value=value))
    block = await world.blocks.CreateBlock(made)
    await world.blocks.AttachBlock(block_service_pb2.AttachBlockRequest(agent_id=agent.id, block_id=block.id))
    return str(block.id)


async def test_a_new_conversation_has_only_what_every_call_has(world: World) -> None:
    agent = await world.make_agent()
    found = await overview(agent)
    assert kinds(found) == ["system"]
    assert (found.message_count, found.total_message_count, found.window) == (0, 0, 0)


async def test_every_piece_is_there_in_order_with_its_weight(world: World) -> None:
    rules = [Rule(tool_name="slow", max_count=Rule.MaxCount(limit=3))]
    agent = await world.make_agent(
        ["slow", "wait"], rules=rules, system="Be kind.", timezone="UTC", model_settings={"context_window": 8000}
    )
    await attach(world, agent, "human", "Ada likes tea.")
    await agent.send("hello")
    found = await overview(agent)
    assert kinds(found) == ["system", "memory", "tool_rules", "metadata", "tools", "messages"]
    assert found.window == 8000
    assert (found.message_count, found.total_message_count) == (2, 2)
    for each in found.sections[:4]:
        assert each.tokens == tokens.count(each.text) > 0
    assert "Ada likes tea." in found.sections[1].text
    assert tool_names(found) == ["slow", "wait"]
    assert found.sections[5].text == ""
    assert found.sections[5].tokens == 2 * tokens.PER_MESSAGE + tokens.count("hello") + tokens.count("ok")
    request = agent.model.calls[-1].request
    assert "\n\n".join(each.text for each in found.sections[:4]) == request.system


async def test_it_answers_while_an_approval_is_pending_and_after_each_verdict(world: World) -> None:
    for verdict in (approve, deny):
        agent = await world.make_agent(["get_time"], approval=["get_time"])
        agent.model.will(call("get_time", "c-1"), say("done"))
        approval = await agent.ask()
        found = await overview(agent)
        assert (found.message_count, found.total_message_count) == (2, 2)
        assert tool_names(found) == ["get_time"]
        await world.answer(verdict("c-1"), approval_id=approval.id)
        await world.wait_for(approval.run_id)
        found = await overview(agent)
        assert roles(await agent.log()) == ["user", "assistant", "approval", "tool", "assistant"]
        assert found.message_count == 5
        shown = agent.model.calls[-1].request
        weighed = section(found, Kind.KIND_MESSAGES)
        assert weighed is not None
        assert weighed.tokens == sum(map(tokens.of_message, shown.messages)) + tokens.PER_MESSAGE + tokens.count("done")


async def test_a_live_run_is_shown_with_its_own_options_and_history(world: World, slow: ProbeTool) -> None:
    other = await world.make_agent()
    rules = [Rule(tool_name="slow", max_count=Rule.MaxCount(limit=1))]
    agent = await world.make_agent(["slow", "wait"], rules=rules, system="Be kind.")
    held = Gate()
    agent.model.will(call("slow", "c-1"), say(held.pass_through, "done"))
    options: dict[str, Any] = {
        "system": "Be quick.", "model": other.model.handle, "client_tools": [tool_pb2.ClientTool(name="mine")],
    }  # fmt: skip
    other.model.will(call("slow", "c-1"), say(held.pass_through, "done"))
    agent.model.forget()
    run_id = await agent.start("go", **options)
    await slow.gate.reached()
    found = await overview(agent)
    assert found.sections[0].text == "Be quick."
    assert (found.message_count, tool_names(found)) == (2, ["slow", "wait", "mine"])
    slow.gate.open()
    await held.reached()
    found = await overview(agent)
    assert (found.message_count, tool_names(found)) == (3, ["wait", "mine"])
    assert [tool.name for tool in other.model.calls[-1].request.tools] == ["wait", "mine"]
    held.open()
    await world.wait_for(run_id)
    found = await overview(agent)
    assert (found.sections[0].text, tool_names(found)) == ("Be kind.", ["slow", "wait"])


async def test_a_summary_stands_for_what_is_below_the_floor(world: World) -> None:
    agent = await world.make_agent()
    for text in ("one", "two", "three"):
        await agent.send(text)
    log = await agent.log()
    summary_id = await world.node.db.write(_summarise, log[-1], floor=log[4].seq, text="They counted.")
    found = await overview(agent)
    assert kinds(found) == ["system", "summary", "messages"]
    assert found.sections[1].text == "They counted."
    assert list(found.message_ids) == [summary_id, log[4].id, log[5].id]
    assert (found.message_count, found.total_message_count) == (3, 7)


def _summarise(conn: Any, last: Any, *, floor: int, text: str) -> str:
    """What a compaction leaves behind."""
    message_id = new_id(Prefix.MESSAGE)
    row = conn.execute(tables.messages.select().where(tables.messages.c.id == last.id)).one()
    values = {**row._mapping, "id": message_id, "seq": row.seq + 1, "role": Role.SUMMARY, "run_id": None}  # noqa: SLF001
    body = msgspec.json.encode(Body((Text(text),))).decode()
    conn.execute(tables.messages.insert().values(**{**values, "body": body}))
    moved = update(tables.conversations).where(tables.conversations.c.id == last.conversation_id)
    conn.execute(moved.values(context_floor=floor, summary_message_id=message_id, next_message_seq=row.seq + 2))
    return message_id


async def test_conversations_have_contexts_of_their_own(world: World, conversations: Conversations) -> None:
    agent = await world.make_agent()
    await agent.send("hello")
    side = await conversations.create(agent.id, model_settings={"context_window": 5000})
    found = await overview(agent, side.id)
    assert (found.message_count, found.window) == (0, 5000)
    await conversations.reset(agent.conversation_id)
    found = await overview(agent)
    assert (found.message_count, found.total_message_count) == (0, 2)


async def test_what_is_not_there_is_not_found(world: World, conversations: Conversations) -> None:
    agent = await world.make_agent()
    nothing = new_id(Prefix.CONVERSATION)
    assert await not_found(overview(agent, nothing)) == ("conversation", nothing)
    assert await invalid(world.conversations.GetContext(api.GetContextRequest())) == ["conversation_id"]
    side = await conversations.create(agent.id)
    await conversations.delete(side.id)
    assert await not_found(overview(agent, side.id)) == ("conversation", side.id)


@pytest.mark.parametrize("edited", [False, True])
async def test_consecutive_calls_share_the_longest_possible_prefix(world: World, edited: bool) -> None:
    agent = await world.make_agent(["memory_insert", "get_time"], system="Be kind.")
    await attach(world, agent, "notes", "first line")
    turn = call("memory_insert", label="notes", new_str="second line") if edited else call("get_time")
    agent.model.will(turn, say("done"), say("again"))
    await agent.send("go")
    await agent.send("go on")
    one, two, three = (made.request for made in agent.model.calls)
    for before, after in ((one, two), (two, three)):
        assert before.tools == after.tools
        assert after.messages[: len(before.messages)] == before.messages
    if edited:
        place = one.system.index("first line") + len("first line")
        assert two.system[:place] == one.system[:place]
        assert two.system[place:].removeprefix("\nsecond line") == one.system[place:]
    else:
        assert two.system == one.system
    assert three.system == two.system
