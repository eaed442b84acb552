"""Several tool calls in one turn: side by side, in order, and mixed with calls that a person must see first."""

import asyncio

import grpc

from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.model_pb2 import ModelSettings
from common.pb.bridle.v1.stop_reason_pb2 import STOP_REASON_END_TURN
from tests.helpers import eventually
from tests.helpers.inprocess import (
    Run,
    approve,
    assert_sound,
    assert_usable,
    calls_of,
    deny,
    kinds,
    on_both,
    refused,
    result,
    return_text,
    returns_of,
    roles,
)
from tests.helpers.models import Gate, ProbeTool, calls, say
from tests.rpc.runs.conftest import MakeWorld

CODE = "740845635798344975"
SUCCEEDED = ToolReturn.OUTCOME_SUCCEEDED
DENIED = ToolReturn.OUTCOME_DENIED


@on_both
async def test_one_answer_may_approve_deny_and_bring_a_result(make_world: MakeWorld) -> None:
    secret, dice = ProbeTool("secret", approval=True), ProbeTool("dice", returns="4")
    world = await make_world(secret, dice)
    agent = await world.make_agent(["secret", "dice"])
    agent.model.will(
        calls(
            ("secret", "yes", {"text": "hello world"}),
            ("secret", "no", {"text": "hello bridle"}),
            ("dice", "dice", {"sides": 16}),
            ("secret", "mine", {"text": "hello test"}),
        ),
        say("here you are"),
    )
    approval = await agent.ask("three codes and a die")

    assert [each.call.id for each in approval.calls] == ["yes", "no", "mine"]
    called = {call.id: call.needs_approval for call in calls_of(await agent.log())}
    assert called == {"yes": True, "no": True, "dice": False, "mine": True}
    assert (secret.started, dice.started) == ([], [])

    decisions = (approve("yes"), deny("no"), result("mine", CODE))
    await world.answer(*decisions, approval_id=approval.id)
    run = await world.wait_for(approval.run_id)

    assert (run.state, run.stop_reason) == (Run.STATE_COMPLETED, STOP_REASON_END_TURN)
    log = await agent.log()
    assert roles(log) == ["user", "assistant", "approval", "tool", "assistant"]
    assert [part.decision.tool_call_id for part in log[2].parts] == ["yes", "no", "mine"]
    returns = [(each.tool_call_id, each.outcome) for each in returns_of(log)]
    assert returns == [("mine", SUCCEEDED), ("no", DENIED), ("yes", SUCCEEDED), ("dice", SUCCEEDED)]
    texts = {each.tool_call_id: return_text(each) for each in returns_of(log)}
    assert (texts["mine"], texts["dice"]) == (CODE, "4")
    assert secret.started == [{"text": "hello world"}]
    assert dice.started == [{"sides": 16}]
    await assert_usable(agent)


async def test_the_calls_that_need_nobody_wait_along(make_world: MakeWorld) -> None:
    secret, dice = ProbeTool("secret", approval=True), ProbeTool("dice")
    world = await make_world(secret, dice)
    agent = await world.make_agent(["secret", "dice"])
    agent.model.will(calls(("dice", "d", {}), ("secret", "s", {})))
    approval = await agent.ask()
    assert dice.started == []

    listed = world.answer(approve("s"), approve("d"), approval_id=approval.id)
    await refused(listed, grpc.StatusCode.INVALID_ARGUMENT, "APPROVAL_MISMATCH")
    await world.answer(deny("s"), approval_id=approval.id)
    await world.wait_for(approval.run_id)

    assert (len(dice.started), len(secret.started)) == (1, 0)
    await assert_sound(agent)


async def test_parallel_tools_run_side_by_side(make_world: MakeWorld) -> None:
    left, right = (ProbeTool(name, gate=Gate(), parallel=True) for name in ("left", "right"))
    world = await make_world(left, right)
    agent = await world.make_agent(["left", "right"])
    agent.model.will(calls(("left", "l", {}), ("right", "r", {})), say("both"))
    run_id = await agent.start("go")

    await asyncio.gather(left.gate.reached(), right.gate.reached())
    right.gate.open()
    await eventually(lambda: right.finished)
    left.gate.open()
    run = await world.wait_for(run_id)

    assert list(run.tools_used) == ["left", "right"]
    events = await world.events(run_id)
    finished = [event.tool_finished.result.tool_call_id for event in events if event.HasField("tool_finished")]
    assert finished == ["r", "l"]
    assert [each.tool_call_id for each in returns_of(await agent.log())] == ["l", "r"]
    await assert_sound(agent)


async def test_other_tools_run_one_after_the_other(make_world: MakeWorld) -> None:
    first, second = ProbeTool("first", gate=Gate()), ProbeTool("second")
    world = await make_world(first, second)
    agent = await world.make_agent(["first", "second"])
    agent.model.will(calls(("first", "1", {}), ("second", "2", {})))
    run_id = await agent.start("go")
    await first.gate.reached()
    assert second.started == []

    first.gate.open()
    await world.wait_for(run_id)

    told = [kind for kind in kinds(await world.events(run_id)) if kind.startswith("tool_") and "delta" not in kind]
    assert told == ["tool_started", "tool_finished", "tool_started", "tool_finished"]


async def test_without_parallel_calls_only_the_first_is_kept(make_world: MakeWorld) -> None:
    first, second = ProbeTool("first"), ProbeTool("second")
    world = await make_world(first, second)
    agent = await world.make_agent(["first", "second"], model_settings=ModelSettings(parallel_tool_calls=False))
    agent.model.will(calls(("first", "1", {}), ("second", "2", {})))

    await agent.send("go")

    assert not agent.model.calls[0].request.parallel
    assert [call.id for call in calls_of(await agent.log())] == ["1"]
    assert second.started == []
    await assert_sound(agent)


async def test_calls_without_ids_and_with_the_same_id_are_told_apart(make_world: MakeWorld) -> None:
    probe = ProbeTool("probe")
    world = await make_world(probe)
    agent = await world.make_agent(["probe"])
    agent.model.will(calls(("probe", "", {"n": 1}), ("probe", "x", {"n": 2}), ("probe", "x", {"n": 3})))

    await agent.send("go")

    assert probe.started == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert len(set(probe.call_ids)) == 3
    await assert_sound(agent)


async def test_an_id_that_comes_again_in_a_later_turn_is_another_call(make_world: MakeWorld) -> None:
    probe = ProbeTool("probe")
    world = await make_world(probe)
    agent = await world.make_agent(["probe"])
    agent.model.will(calls(("probe", "call_0", {"n": 1})), calls(("probe", "call_0", {"n": 2})), say("done"))

    await agent.send("go")

    assert probe.started == [{"n": 1}, {"n": 2}]
    # The id is the idempotency key of the call: a tool that keeps to it must not take the second for the first.
    assert len(set(probe.call_ids)) == 2
    await assert_sound(agent)
