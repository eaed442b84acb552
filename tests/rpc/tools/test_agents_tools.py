"""Giving tools to agents, taking them away, and putting them behind a person."""

import asyncio

from common.db.tables import agents
from common.ids import Prefix, new_id
from common.pb.bridle.v1.tool_rule_pb2 import ToolRule
from services.tools.builtin import BUILTIN_TOOLS
from services.tools.memory import MEMORY_TOOLS
from tests.helpers.inprocess import Run, World, approve, invalid, not_found
from tests.helpers.models import ProbeTool, call, say
from tests.rpc.tools.rig import Tools, approval_rule

DICE, TIME, WAIT = (tool.definition.id for tool in BUILTIN_TOOLS)
EVERY = sorted(
    ["delete_files", *(tool.definition.name for tool in BUILTIN_TOOLS), *(tool.name for tool in MEMORY_TOOLS)]
)


async def test_an_attached_tool_can_be_called_from_the_next_run_on(tools: Tools, world: World) -> None:
    agent = await world.make_agent()
    await agent.send("hello")
    before = await agent.get()
    await tools.attach(agent.id, DICE)
    after = await agent.get()
    assert (list(after.tool_ids), list(after.tool_rules)) == ([DICE], [])
    assert after.etag != before.etag
    assert after.update_time.ToDatetime() > before.update_time.ToDatetime()
    agent.model.will(call("roll_dice"), say("done"))
    sent = await agent.send("roll")
    assert (sent.run.state, list(sent.run.tools_used)) == (Run.STATE_COMPLETED, ["roll_dice"])


async def test_attaching_again_changes_nothing(tools: Tools, world: World, dangerous: ProbeTool) -> None:
    agent = await world.make_agent(["roll_dice"])
    tool_id = dangerous.tool.definition.id
    await tools.attach(agent.id, tool_id)
    attached = await agent.get()
    assert (list(attached.tool_ids), list(attached.tool_rules)) == ([DICE, tool_id], [approval_rule("delete_files")])
    await tools.attach(agent.id, tool_id)
    assert await agent.get() == attached
    await tools.guard(agent.id, "delete_files", False)
    await tools.attach(agent.id, tool_id)
    assert list((await agent.get()).tool_rules) == [], "a rule that was taken away on purpose does not come back"


async def test_a_tool_with_that_default_waits_for_a_person(tools: Tools, world: World, dangerous: ProbeTool) -> None:
    agent = await world.make_agent()
    await tools.attach(agent.id, dangerous.tool.definition.id)
    agent.model.will(call("delete_files", "c-1"), say("done"))
    ran = dangerous.finished
    approval = await agent.ask()
    assert dangerous.finished == ran
    await world.answer(approve("c-1"), approval_id=approval.id)
    await world.wait_for(approval.run_id)
    assert dangerous.finished == ran + 1


async def test_a_detached_tool_is_not_offered_any_more(tools: Tools, world: World, dangerous: ProbeTool) -> None:
    agent = await world.make_agent(["roll_dice", "delete_files"])
    tool_id = dangerous.tool.definition.id
    before = await agent.get()
    await tools.detach(agent.id, tool_id)
    detached = await agent.get()
    assert (list(detached.tool_ids), list(detached.tool_rules)) == ([DICE], [approval_rule("delete_files")])
    assert detached.etag != before.etag
    await agent.send("hello")
    assert [tool.name for tool in agent.model.calls[-1].request.tools] == ["roll_dice"]
    await tools.detach(agent.id, tool_id)
    assert (await agent.get()).etag == detached.etag, "detaching what is not attached changes nothing"


async def test_a_tool_that_is_gone_can_still_be_detached(tools: Tools, world: World) -> None:
    agent, gone = await world.make_agent(["roll_dice"]), new_id(Prefix.TOOL)
    spec = f'{{"tool_ids":["{gone}","{DICE}"]}}'
    update = agents.update().where(agents.c.id == agent.id).values(spec=spec)
    await world.node.db.write(lambda conn: conn.execute(update) and None)
    assert await tools.names(agent_id=agent.id) == ["roll_dice"]
    await tools.detach(agent.id, gone)
    assert list((await agent.get()).tool_ids) == [DICE]


async def test_approval_is_set_whatever_the_default_is(tools: Tools, world: World, dangerous: ProbeTool) -> None:
    limit = ToolRule(tool_name="delete_files", max_count=ToolRule.MaxCount(limit=3))
    agent = await world.make_agent(["roll_dice", "delete_files"], rules=[limit])
    await tools.guard(agent.id, "roll_dice")
    await tools.guard(agent.id, "delete_files", False)
    changed = await agent.get()
    assert list(changed.tool_rules) == [limit, approval_rule("roll_dice")], "other rules stay"
    await tools.guard(agent.id, "roll_dice")
    await tools.guard(agent.id, "delete_files", False)
    assert await agent.get() == changed

    agent.model.will(call("delete_files"), call("roll_dice", "c-1"))
    ran = dangerous.finished
    approval = await agent.ask()
    assert [each.call.name for each in approval.calls] == ["roll_dice"]
    assert dangerous.finished == ran + 1


async def test_a_name_that_only_a_client_knows_can_be_guarded(tools: Tools, world: World) -> None:
    agent = await world.make_agent()
    await tools.guard(agent.id, "open_window")
    assert list((await agent.get()).tool_rules) == [approval_rule("open_window")]
    await tools.guard(agent.id, "open_window", False)
    assert list((await agent.get()).tool_rules) == []


async def test_all_rules_of_that_kind_go_at_once(tools: Tools, world: World) -> None:
    agent = await world.make_agent(["wait"], approval=["wait", "wait"])
    await tools.guard(agent.id, "wait", False)
    assert list((await agent.get()).tool_rules) == []


async def test_an_agent_cannot_have_rules_without_end(tools: Tools, world: World, dangerous: ProbeTool) -> None:
    rules = [ToolRule(tool_name=f"t{number}", terminal=ToolRule.Terminal()) for number in range(256)]
    agent = await world.make_agent(rules=rules)
    before = await agent.get()
    assert await invalid(tools.guard(agent.id, "wait")) == ["agent.tool_rules"]
    assert await invalid(tools.attach(agent.id, dangerous.tool.definition.id)) == ["agent.tool_rules"]
    await tools.guard(agent.id, "wait", False)
    assert await agent.get() == before


async def test_concurrent_changes_all_count(tools: Tools, world: World) -> None:
    agent = await world.make_agent()
    attaches = (tools.attach(agent.id, tool_id) for tool_id in (DICE, TIME, WAIT))
    guards = (tools.guard(agent.id, f"tool_{number}") for number in range(5))
    await asyncio.gather(*attaches, *guards)
    final = await agent.get()
    assert set(final.tool_ids) == {DICE, TIME, WAIT}
    assert {rule.tool_name for rule in final.tool_rules} == {f"tool_{number}" for number in range(5)}
    assert final.etag == "v9"


async def test_bad_requests_name_their_fields_and_what_is_missing(tools: Tools, world: World) -> None:
    agent = await world.make_agent()
    nobody, nothing = new_id(Prefix.AGENT), new_id(Prefix.TOOL)
    for act in (tools.attach, tools.detach):
        assert await invalid(act("", "")) == ["agent_id", "tool_id"]
        assert await invalid(act("x", agent.id)) == ["agent_id", "tool_id"]
        assert await not_found(act(nobody, DICE)) == ("agent", nobody)
        assert await not_found(act(agent.id, nothing)) == ("tool", nothing)
    assert await invalid(tools.guard("", "")) == ["agent_id", "tool_name"]
    assert await invalid(tools.guard(agent.id, "no spaces")) == ["tool_name"]
    assert await not_found(tools.guard(nobody, "wait")) == ("agent", nobody)
    assert (await agent.get()).etag == "v1"


# --- lists ------------------------------------------------------------------------------------------------------------


async def test_tools_are_listed_by_agent_name_and_text(tools: Tools, world: World) -> None:
    agent = await world.make_agent(["wait", "roll_dice"])
    assert await tools.names() == EVERY
    assert await tools.names(agent_id=agent.id) == ["roll_dice", "wait"]
    assert await tools.names(agent_id=agent.id, query="DIE") == ["roll_dice"]
    assert await tools.names(names=["wait", "nothing", "get_time"]) == ["get_time", "wait"]
    assert await tools.names(agent_id=agent.id, names=["get_time"]) == []


async def test_tools_come_in_pages(tools: Tools) -> None:
    most = len(EVERY) - 1
    first, token = await tools.page(page_size=most)
    assert first == EVERY[:most]
    assert await tools.page(page_size=most, page_token=token) == (EVERY[most:], "")
    assert await tools.page(page_size=len(EVERY)) == (EVERY, "")
    assert await invalid(tools.page(page_size=most, page_token=token, query="x")) == ["page_token"]


async def test_a_list_is_refused_what_it_cannot_mean(tools: Tools) -> None:
    assert await invalid(tools.page(agent_id="x", query="q" * 1001)) == ["agent_id", "query"]
    assert await invalid(tools.page(page_size=-1)) == ["page_size"]
    assert await invalid(tools.page(page_token="x")) == ["page_token"]
    nobody = new_id(Prefix.AGENT)
    assert await not_found(tools.page(agent_id=nobody)) == ("agent", nobody)
