"""People in the loop: the request, the three kinds of answer, and what follows from them."""

import hashlib
import json
from collections.abc import Awaitable, Callable

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from common.pb.bridle.v1.agent_pb2 import Agent
from common.pb.bridle.v1.agent_service_pb2 import UpdateAgentRequest
from common.pb.bridle.v1.approval_pb2 import Approval
from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.stop_reason_pb2 import (
    STOP_REASON_END_TURN,
    STOP_REASON_LLM_API_ERROR,
    STOP_REASON_REQUIRES_APPROVAL,
)
from services.messages.model import Role
from services.models.errors import ModelErrorType
from tests.helpers.inprocess import (
    AgentClient,
    Decision,
    Run,
    approve,
    assert_sound,
    assert_usable,
    calls_of,
    deny,
    kinds,
    on_both,
    rest_of,
    result,
    return_text,
    returns_of,
    roles,
    text_of,
    user,
)
from tests.helpers.models import ProbeTool, call, calls, fail, say, think
from tests.rpc.runs.conftest import MakeWorld

CODE = "740845635798344975"
REASON = f"You need not call it, the code is {CODE}."

Make = Callable[[], Awaitable[tuple[AgentClient, ProbeTool]]]


@pytest.fixture
def make(make_world: MakeWorld) -> Make:
    """An agent with a tool that needs approval, about to call it."""

    async def made() -> tuple[AgentClient, ProbeTool]:
        secret = ProbeTool("secret", returns=CODE, approval=True)
        world = await make_world(secret, ProbeTool("dice"))
        agent = await world.make_agent(["secret", "dice"])
        agent.model.will(call("secret", "c1", before=(think("I need it"),), text="hello world"))
        return agent, secret

    return made


# The three answers, what becomes of the call, and what the model is told.
ANSWERS = pytest.mark.parametrize(
    ("decision", "outcome", "told", "ran"),
    [
        pytest.param(approve("c1"), ToolReturn.OUTCOME_SUCCEEDED, CODE, 1, id="approve"),
        pytest.param(
            deny("c1", REASON),
            ToolReturn.OUTCOME_DENIED,
            f"Error: request to call tool denied. User reason: {REASON}",
            0,
            id="deny",
        ),
        pytest.param(result("c1", CODE), ToolReturn.OUTCOME_SUCCEEDED, CODE, 0, id="client"),
    ],
)


def stored(decision: Decision) -> Decision:
    """As the server keeps it: a result also has the tool's name."""
    kept = Decision()
    kept.CopyFrom(decision)
    if kept.HasField("result"):
        kept.result.tool_name = "secret"
    return kept


async def test_a_run_stops_and_asks(make: Make) -> None:
    agent, secret = await make()

    sent = await agent.send("get me the code")

    run = sent.run
    assert (run.state, run.stop_reason) == (Run.STATE_AWAITING_APPROVAL, STOP_REASON_REQUIRES_APPROVAL)
    assert not run.HasField("stop_time")
    (asked,) = calls_of(sent.messages)
    assert (asked.id, asked.name, asked.needs_approval) == ("c1", "secret", True)
    assert json.loads(asked.arguments) == {"text": "hello world"}
    approval = await agent.world.approval(run.approval_id)
    assert approval.state == Approval.STATE_PENDING
    assert (approval.run_id, approval.agent_id, approval.conversation_id) == (run.id, agent.id, agent.conversation_id)
    assert approval.message_id == sent.messages[-1].id
    (waiting,) = approval.calls
    assert waiting.call == asked
    assert waiting.arguments_sha256 == hashlib.sha256(asked.arguments.encode()).hexdigest()
    assert not waiting.client_side
    assert secret.started == []
    assert (await agent.get()).last_stop_reason == STOP_REASON_REQUIRES_APPROVAL
    assert [message.id for message in await agent.log(in_context=True)] == [m.id for m in await agent.log()]


async def test_a_stream_ends_when_it_is_asked(make: Make) -> None:
    agent, _ = await make()

    events = await rest_of(agent.stream("get me the code"))

    assert kinds(events)[-2:] == ["message_added", "approval_requested"]
    assert [each.call.name for each in events[-1].approval_requested.approval.calls] == ["secret"]
    assert "".join(event.tool_call_delta.arguments for event in events) == '{"text": "hello world"}'
    run_id = events[-1].approval_requested.approval.run_id
    assert (await agent.world.run(run_id)).state == Run.STATE_AWAITING_APPROVAL


@on_both
@ANSWERS
async def test_an_answer_resumes_the_same_run(
    make: Make, decision: Decision, outcome: int, told: str, ran: int
) -> None:
    agent, secret = await make()
    approval = await agent.ask()
    agent.model.will(say("there you are"))

    answered = await agent.world.answer(decision, approval_id=approval.id)

    assert answered.run.id == approval.run_id
    assert answered.approval.state == Approval.STATE_DECIDED
    assert list(answered.approval.decisions) == [stored(decision)]
    events = await agent.world.events(approval.run_id, answered.after_seq)
    assert kinds(events)[0] == "approval_decided"
    (finished,) = [event.tool_finished.result for event in events if event.HasField("tool_finished")]
    assert (finished.tool_call_id, finished.outcome, return_text(finished)) == ("c1", outcome, told)
    stopped = events[-1].run_stopped.run
    assert (stopped.state, stopped.stop_reason) == (Run.STATE_COMPLETED, STOP_REASON_END_TURN)
    assert len(secret.started) == ran
    shown = agent.model.calls[-1].request.messages[-1]
    assert shown.role is Role.TOOL
    await assert_sound(agent)


@ANSWERS
async def test_the_log_tells_what_was_decided(
    make: Make, decision: Decision, outcome: int, told: str, ran: int
) -> None:
    agent, _ = await make()
    approval = await agent.ask()
    before = await agent.log()
    assert roles(before) == ["user", "assistant"]

    await agent.world.answer(decision, agent_id=agent.id)
    await agent.world.wait_for(approval.run_id)

    answer, returned, *rest = await agent.log(after_message_id=before[-1].id)
    assert roles([answer, returned, *rest]) == ["approval", "tool", "assistant"]
    assert [part.decision for part in answer.parts] == [stored(decision)]
    (only,) = returns_of([returned])
    assert (only.tool_call_id, only.tool_name, only.outcome) == ("c1", "secret", outcome)
    assert return_text(only) == told


@ANSWERS
async def test_after_an_answer_the_agent_goes_on(
    make: Make, decision: Decision, outcome: int, told: str, ran: int
) -> None:
    agent, _ = await make()
    approval = await agent.ask()
    await agent.world.answer(decision, run_id=approval.run_id)
    await agent.world.wait_for(approval.run_id)

    await assert_usable(agent)

    assert not (await agent.world.run(approval.run_id)).approval_id
    assert (await agent.get()).last_stop_reason == STOP_REASON_END_TURN


@ANSWERS
async def test_the_model_may_fail_after_an_answer(
    make: Make, decision: Decision, outcome: int, told: str, ran: int
) -> None:
    agent, secret = await make()
    approval = await agent.ask()
    agent.model.will(fail(ModelErrorType.ERROR, message="TEST: made to fail"))

    answered = await agent.world.answer(decision, agent_id=agent.id)

    events = await agent.world.events(approval.run_id, answered.after_seq)
    run = events[-1].run_stopped.run
    assert (run.state, run.stop_reason) == (Run.STATE_FAILED, STOP_REASON_LLM_API_ERROR)
    assert (run.error.type, run.error.message) == ("llm_error", "TEST: made to fail")
    assert roles(await agent.log()) == ["user", "assistant", "approval", "tool"]
    assert len(secret.started) == ran
    await assert_usable(agent)


@ANSWERS
async def test_messages_may_come_with_the_answer(
    make: Make, decision: Decision, outcome: int, told: str, ran: int
) -> None:
    agent, _ = await make()
    approval = await agent.ask()
    agent.model.will(say("I see"))

    await agent.world.answer(decision, agent_id=agent.id, follow_up=[user("no special characters"), user("please")])
    await agent.world.wait_for(approval.run_id)

    log = await agent.log()
    assert roles(log) == ["user", "assistant", "approval", "tool", "user", "user", "assistant"]
    assert [text_of(message) for message in log[4:]] == ["no special characters", "please", "I see"]
    assert [message.role for message in agent.model.calls[-1].request.messages][-3:] == [
        Role.TOOL,
        Role.USER,
        Role.USER,
    ]
    await assert_usable(agent)


async def test_without_the_rule_the_tool_just_runs(make: Make) -> None:
    agent, secret = await make()
    approval = await agent.ask()
    await agent.world.answer(approve("c1"), approval_id=approval.id)
    await agent.world.wait_for(approval.run_id)
    change = UpdateAgentRequest(agent=Agent(id=agent.id), update_mask=FieldMask(paths=["tool_rules"]))
    await agent.world.agents.UpdateAgent(change, timeout=10)
    agent.model.will(call("secret", "c2", text="again"), say("done"))

    sent = await agent.send("once more")

    assert sent.run.state == Run.STATE_COMPLETED
    assert roles(sent.messages) == ["assistant", "tool", "assistant"]
    assert secret.started == [{"text": "hello world"}, {"text": "again"}]


async def test_a_tool_may_need_approval_for_one_agent_only(make_world: MakeWorld) -> None:
    probe = ProbeTool("probe")
    world = await make_world(probe)
    guarded, free = await world.make_agent(["probe"], approval=["probe"]), await world.make_agent(["probe"])
    for agent in (guarded, free):
        agent.model.will(call("probe", "c1"))

    assert (await guarded.send("go")).run.state == Run.STATE_AWAITING_APPROVAL
    assert (await free.send("go")).run.state == Run.STATE_COMPLETED


async def test_one_run_may_ask_several_times(make: Make) -> None:
    agent, secret = await make()
    first = await agent.ask()
    agent.model.will(call("secret", "c2", text="more"), say("enough"))
    answered = await agent.world.answer(approve("c1"), approval_id=first.id)
    await agent.world.events(first.run_id, answered.after_seq, until_approval=True)

    second = await agent.world.run(first.run_id)

    assert second.state == Run.STATE_AWAITING_APPROVAL
    assert second.approval_id != first.id
    assert (await agent.world.approval(first.id)).state == Approval.STATE_DECIDED
    await agent.world.answer(deny("c2"), approval_id=second.approval_id)
    assert (await agent.world.wait_for(first.run_id)).state == Run.STATE_COMPLETED
    assert len(secret.started) == 1
    assert kinds(await agent.world.events(first.run_id)).count("approval_requested") == 2
    await assert_sound(agent)


async def test_a_denial_without_a_reason_says_none(make: Make) -> None:
    agent, _ = await make()
    approval = await agent.ask()

    await agent.world.answer(deny("c1"), approval_id=approval.id)
    await agent.world.wait_for(approval.run_id)

    (returned,) = returns_of(await agent.log())
    assert return_text(returned) == "Error: request to call tool denied. User reason: None"


async def test_what_runs_is_what_was_approved(make_world: MakeWorld) -> None:
    secret = ProbeTool("secret", approval=True)
    world = await make_world(secret)
    agent = await world.make_agent(["secret"])
    odd = {"text": 'quotes " and \u00fc and \n', "number": 1.0, "nested": {"b": 1, "a": [2]}}
    agent.model.will(calls(("secret", "c1", odd)))
    approval = await agent.ask()
    (waiting,) = approval.calls

    await world.answer(approve("c1"), approval_id=approval.id, arguments_sha256={"c1": waiting.arguments_sha256})
    await world.wait_for(approval.run_id)

    assert secret.started == [odd]
    assert secret.call_ids == ["c1"]
    assert waiting.call.arguments == json.dumps(odd)
