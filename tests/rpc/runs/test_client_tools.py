"""Tools that the caller runs: offered to the model, asked for like an approval, answered with results."""

from google.protobuf.struct_pb2 import Struct

from common.pb.bridle.v1.message_pb2 import Image, Part, ToolReturn
from common.pb.bridle.v1.tool_pb2 import ClientTool
from services.messages.model import Image as StoredImage
from services.messages.model import ToolReturn as StoredReturn
from tests.helpers.inprocess import (
    Run,
    World,
    approve,
    assert_sound,
    assert_usable,
    deny,
    kinds,
    on_both,
    result,
    return_text,
    returns_of,
    user,
)
from tests.helpers.models import ProbeTool, call, say
from tests.rpc.runs.conftest import MakeWorld

FAILED = ToolReturn.OUTCOME_FAILED


def client_tool(name: str) -> ClientTool:
    parameters = Struct()
    parameters.update({"type": "object", "properties": {"path": {"type": "string"}}})
    return ClientTool(name=name, description="Reads a file here.", parameters=parameters)


OPEN = client_tool("open_file")


async def test_the_caller_runs_it(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    agent.model.will(call("open_file", "c1", path="a.txt"), say("it says hello"))

    approval = await agent.ask("read it", client_tools=[OPEN])

    offered = agent.model.calls[0].request.tools
    assert [(tool.name, tool.description) for tool in offered] == [("open_file", "Reads a file here.")]
    assert offered[0].parameters == {"type": "object", "properties": {"path": {"type": "string"}}}
    (waiting,) = approval.calls
    assert waiting.client_side
    assert waiting.call.arguments == '{"path": "a.txt"}'
    answered = await world.answer(result("c1", "hello"), approval_id=approval.id)
    events = await world.events(approval.run_id, answered.after_seq)
    assert "tool_started" not in kinds(events)
    assert events[-1].run_stopped.run.state == Run.STATE_COMPLETED
    (returned,) = returns_of(await agent.log())
    assert (returned.tool_call_id, returned.tool_name) == ("c1", "open_file")
    assert (returned.outcome, return_text(returned)) == (ToolReturn.OUTCOME_SUCCEEDED, "hello")
    assert list(events[-1].run_stopped.run.tools_used) == ["open_file"]
    await assert_usable(agent)


async def test_its_tools_are_gone_with_the_run(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(call("open_file", "c1"))
    approval = await agent.ask(client_tools=[OPEN])
    await world.answer(result("c1", "hello"), approval_id=approval.id)
    await world.wait_for(approval.run_id)
    assert [tool.name for tool in agent.model.calls[1].request.tools] == ["open_file"]
    agent.model.will(call("open_file", "c2"))

    await agent.send("again")

    assert agent.model.calls[2].request.tools == ()
    (_, returned) = returns_of(await agent.log())
    assert (returned.outcome, return_text(returned)) == (FAILED, "Error: Tool not found: open_file")
    await assert_sound(agent)


async def test_a_failure_there_is_a_failure_here(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(call("open_file", "c1"), say("pity"))
    approval = await agent.ask(client_tools=[OPEN])

    await world.answer(result("c1", "no such file", failed=True), approval_id=approval.id)

    assert (await world.wait_for(approval.run_id)).state == Run.STATE_COMPLETED
    (returned,) = returns_of(await agent.log())
    assert (returned.outcome, return_text(returned)) == (FAILED, "no such file")


async def test_approving_it_does_not_run_it(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(call("open_file", "c1"))
    approval = await agent.ask(client_tools=[OPEN])

    await world.answer(approve("c1"), approval_id=approval.id)
    await world.wait_for(approval.run_id)

    (returned,) = returns_of(await agent.log())
    assert (returned.outcome, return_text(returned)) == (FAILED, "Error: Tool not found: open_file")
    await assert_sound(agent)


async def test_it_may_be_denied(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(call("open_file", "c1"))
    approval = await agent.ask(client_tools=[OPEN])

    await world.answer(deny("c1", "not that file"), approval_id=approval.id)
    await world.wait_for(approval.run_id)

    (returned,) = returns_of(await agent.log())
    assert returned.outcome == ToolReturn.OUTCOME_DENIED
    assert return_text(returned).endswith("User reason: not that file")


async def test_it_takes_the_place_of_an_attached_tool(make_world: MakeWorld) -> None:
    attached = ProbeTool("open_file")
    world = await make_world(attached)
    agent = await world.make_agent(["open_file"])
    agent.model.will(call("open_file", "c1"))

    approval = await agent.ask(client_tools=[OPEN])

    assert [tool.description for tool in agent.model.calls[0].request.tools] == ["Reads a file here."]
    await world.answer(result("c1", "mine"), approval_id=approval.id)
    await world.wait_for(approval.run_id)
    assert attached.started == []


async def test_the_answer_may_bring_other_tools(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(call("open_file", "c1"), call("close_file", "c2"), say("done"))
    approval = await agent.ask(client_tools=[OPEN])

    answered = await world.answer(
        result("c1", "hello"), approval_id=approval.id, client_tools=[client_tool("close_file")]
    )
    await world.events(approval.run_id, answered.after_seq, until_approval=True)

    assert [tool.name for tool in agent.model.calls[1].request.tools] == ["close_file"]
    run = await world.run(approval.run_id)
    assert run.state == Run.STATE_AWAITING_APPROVAL
    await world.answer(result("c2", "closed"), approval_id=run.approval_id)
    assert (await world.wait_for(run.id)).state == Run.STATE_COMPLETED
    assert [tool.name for tool in agent.model.calls[2].request.tools] == ["close_file"]
    await assert_sound(agent)


@on_both
async def test_a_result_may_hold_pictures(make_world: MakeWorld) -> None:
    world = await make_world()
    agent = await world.make_agent()
    agent.model.will(call("open_file", "c1"), say("a cat"))
    approval = await agent.ask(client_tools=[OPEN])
    picture = Part(image=Image(data=b"\x89PNG\x00\xff", media_type="image/png"))

    await world.answer(result("c1", "look: ", picture), approval_id=approval.id)
    await world.wait_for(approval.run_id)

    (returned,) = returns_of(await agent.log())
    assert returned.content[1] == picture
    shown = agent.model.calls[1].request.messages[-1].parts[0]
    assert isinstance(shown, StoredReturn)
    assert shown.content[1] == StoredImage(data=b"\x89PNG\x00\xff", media_type="image/png")


async def test_a_cancelled_client_call_is_denied(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(call("open_file", "c1"))
    approval = await agent.ask(client_tools=[OPEN])

    await world.cancel(approval.run_id)

    (returned,) = returns_of(await agent.log())
    assert returned.outcome == ToolReturn.OUTCOME_DENIED
    await assert_usable(agent)


async def test_a_result_for_a_call_of_the_server_is_taken_too(make_world: MakeWorld) -> None:
    secret = ProbeTool("secret", approval=True)
    world = await make_world(secret)
    agent = await world.make_agent(["secret"])
    agent.model.will(call("secret", "c1"), say("ok"))
    approval = await agent.ask()

    await world.answer(result("c1", "from the client"), approval_id=approval.id, follow_up=[user("go on")])
    await world.wait_for(approval.run_id)

    assert secret.started == []
    assert return_text(returns_of(await agent.log())[0]) == "from the client"
