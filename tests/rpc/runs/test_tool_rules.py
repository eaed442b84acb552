"""Tool rules end to end: what the model is offered, what it is forced to, and what ends the run."""

import pytest
from google.protobuf.struct_pb2 import Struct

from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.stop_reason_pb2 import (
    STOP_REASON_END_TURN,
    STOP_REASON_MAX_STEPS,
    STOP_REASON_NO_TOOL_CALL,
    STOP_REASON_TOOL_RULE,
)
from tests.helpers.inprocess import (
    AgentClient,
    Rule,
    Run,
    approve,
    assert_sound,
    assert_usable,
    deny,
    return_text,
    returns_of,
    roles,
    text_of,
)
from tests.helpers.models import ProbeTool, call, calls, say
from tests.rpc.runs.conftest import MakeWorld

NAMES = ("first", "second", "third")


class Rig:
    """An agent with three tools."""

    def __init__(self, agent: AgentClient, tools: dict[str, ProbeTool]) -> None:
        self.agent = agent
        self.tools = tools

    def offered(self, number: int) -> tuple[list[str], bool]:
        """What the model could call in one of its calls, and whether it had to."""
        request = self.agent.model.calls[number].request
        return [tool.name for tool in request.tools], request.forced

    @property
    def ran(self) -> list[int]:
        """How often each tool ran."""
        return [len(self.tools[name].started) for name in NAMES]


async def rig(make_world: MakeWorld, *rules: Rule, **returns: str) -> Rig:
    tools = {name: ProbeTool(name, returns=returns.get(name, "")) for name in NAMES}
    world = await make_world(*tools.values())
    return Rig(await world.make_agent(NAMES, rules=rules), tools)


async def test_run_first(make_world: MakeWorld) -> None:
    args = Struct()
    args.update({"city": "Oslo"})
    made = await rig(make_world, Rule(tool_name="second", run_first=Rule.RunFirst(args=args)))
    made.agent.model.will(call("second", city="Rome", days=2), say("done"))

    run = (await made.agent.send("go")).run

    assert made.offered(0) == (["second"], True)
    assert made.offered(1) == (list(NAMES), False)
    assert made.tools["second"].started == [{"city": "Oslo", "days": 2}]
    assert run.stop_reason == STOP_REASON_END_TURN
    # A new run starts with an empty history.
    made.agent.model.will(call("second"))
    await made.agent.send("again")
    assert made.offered(2) == (["second"], True)


async def test_a_forced_call_that_is_not_made(make_world: MakeWorld) -> None:
    made = await rig(make_world, Rule(tool_name="second", run_first=Rule.RunFirst()))
    made.agent.model.will(say("I would rather not"))

    run = (await made.agent.send("go")).run

    assert (run.state, run.stop_reason) == (Run.STATE_FAILED, STOP_REASON_NO_TOOL_CALL)
    made.agent.model.will(call("second"))
    assert (await made.agent.send("go on")).run.state == Run.STATE_COMPLETED
    await assert_sound(made.agent)


async def test_terminal(make_world: MakeWorld) -> None:
    made = await rig(make_world, Rule(tool_name="second", terminal=Rule.Terminal()))
    made.agent.model.will(call("first"), call("second"))

    run = (await made.agent.send("go")).run

    assert (run.state, run.stop_reason, run.step_count) == (Run.STATE_COMPLETED, STOP_REASON_TOOL_RULE, 2)
    assert roles(await made.agent.log())[-1] == "tool"
    assert (await made.agent.get()).last_stop_reason == STOP_REASON_TOOL_RULE
    await assert_usable(made.agent)


async def test_children(make_world: MakeWorld) -> None:
    made = await rig(make_world, Rule(tool_name="first", child_tools=Rule.ChildTools(children=["third"])))
    made.agent.model.will(call("first"), call("third"), say("done"))

    await made.agent.send("go")

    assert [made.offered(number) for number in range(3)] == [
        (list(NAMES), False),
        (["third"], True),
        (list(NAMES), False),
    ]


async def test_parents(make_world: MakeWorld) -> None:
    made = await rig(make_world, Rule(tool_name="first", parent_tools=Rule.ParentTools(children=["third"])))
    made.agent.model.will(call("first"), call("third"))

    await made.agent.send("go")

    assert [made.offered(number) for number in range(3)] == [
        (["first", "second"], False),
        (["third"], True),
        (["first", "second"], False),
    ]


@pytest.mark.parametrize(
    ("returned", "offer"),
    [("yes", (["second"], True)), ("3", (["third"], True)), ("else", (["first"], True))],
)
async def test_conditional(make_world: MakeWorld, returned: str, offer: tuple[list[str], bool]) -> None:
    mapping = Rule.Conditional(child_output_mapping={"yes": "second", "3.0": "third"}, default_child="first")
    made = await rig(make_world, Rule(tool_name="first", conditional=mapping), first=returned)
    made.agent.model.will(call("first"), call(offer[0][0]))

    await made.agent.send("go", max_steps=2)

    assert made.offered(1) == offer


async def test_required_before_exit(make_world: MakeWorld) -> None:
    made = await rig(make_world, Rule(tool_name="third", required_before_exit=Rule.RequiredBeforeExit()))
    made.agent.model.will(say("I am done"), call("third"), say("now I am"))

    run = (await made.agent.send("go")).run

    assert (run.state, run.stop_reason) == (Run.STATE_COMPLETED, STOP_REASON_END_TURN)
    log = await made.agent.log()
    assert roles(log) == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    assert text_of(log[2]) == "ToolRuleViolated: You must call third at least once to exit the loop."
    assert made.ran == [0, 0, 1]


async def test_required_before_exit_is_stronger_than_terminal(make_world: MakeWorld) -> None:
    made = await rig(
        make_world,
        Rule(tool_name="first", terminal=Rule.Terminal()),
        Rule(tool_name="third", required_before_exit=Rule.RequiredBeforeExit()),
    )
    made.agent.model.will(call("first"), call("third"), call("first"))

    run = (await made.agent.send("go")).run

    assert (run.stop_reason, made.ran) == (STOP_REASON_TOOL_RULE, [2, 0, 1])
    assert "You must call third" in text_of((await made.agent.log())[3])


async def test_a_nudge_does_not_go_on_for_ever(make_world: MakeWorld) -> None:
    made = await rig(make_world, Rule(tool_name="third", required_before_exit=Rule.RequiredBeforeExit()))

    run = (await made.agent.send("go", max_steps=3)).run

    assert (run.state, run.stop_reason) == (Run.STATE_COMPLETED, STOP_REASON_MAX_STEPS)
    assert len(made.agent.model.calls) == 3


async def test_max_count(make_world: MakeWorld) -> None:
    made = await rig(make_world, Rule(tool_name="first", max_count=Rule.MaxCount(limit=2)))
    made.agent.model.will(call("first"), call("first"), call("first", "c3"), say("enough"))

    await made.agent.send("go")

    assert made.offered(1) == (list(NAMES), False)
    assert made.offered(2) == (["second", "third"], False)
    assert made.ran == [2, 0, 0]
    refusal = returns_of(await made.agent.log())[-1]
    assert (refusal.tool_call_id, refusal.outcome) == ("c3", ToolReturn.OUTCOME_FAILED)
    assert return_text(refusal).startswith("[ToolConstraintError] Cannot call first, valid tools include: ")
    await assert_sound(made.agent)


async def test_max_count_within_one_turn(make_world: MakeWorld) -> None:
    made = await rig(make_world, Rule(tool_name="first", max_count=Rule.MaxCount(limit=2)))
    made.agent.model.will(calls(*(("first", f"c{number}", {}) for number in range(3))), say("enough"))

    await made.agent.send("go")

    assert made.ran == [2, 0, 0]
    assert [each.outcome for each in returns_of(await made.agent.log())].count(ToolReturn.OUTCOME_FAILED) == 1
    await assert_sound(made.agent)


async def test_a_call_that_is_not_allowed_runs_nothing(make_world: MakeWorld) -> None:
    made = await rig(make_world, Rule(tool_name="first", child_tools=Rule.ChildTools(children=["third"])))
    made.agent.model.will(call("first"), call("second", "c2"), call("third"), say("ok"))

    run = (await made.agent.send("go")).run

    assert run.state == Run.STATE_COMPLETED
    assert made.ran == [1, 0, 1]
    texts = {each.tool_call_id: return_text(each) for each in returns_of(await made.agent.log())}
    assert texts["c2"] == "[ToolConstraintError] Cannot call second, valid tools include: ['third']"
    # What was not allowed does not count as called: the child is still due.
    assert made.offered(2) == (["third"], True)


async def test_rules_look_at_what_ran_not_at_what_was_denied(make_world: MakeWorld) -> None:
    made = await rig(
        make_world,
        Rule(tool_name="first", terminal=Rule.Terminal()),
        Rule(tool_name="first", requires_approval=Rule.RequiresApproval()),
    )
    world = made.agent.world
    made.agent.model.will(call("first", "c1"), call("first", "c2"))
    approval = await made.agent.ask()

    denied = await world.answer(deny("c1"), approval_id=approval.id)
    await world.events(approval.run_id, denied.after_seq, until_approval=True)
    await world.answer(approve("c2"), run_id=approval.run_id)

    run = await world.wait_for(approval.run_id)
    assert (run.stop_reason, run.step_count, made.ran) == (STOP_REASON_TOOL_RULE, 2, [1, 0, 0])


async def test_rules_are_said_in_the_prompt_and_stop_parallel_calls(make_world: MakeWorld) -> None:
    made = await rig(make_world, Rule(tool_name="first", max_count=Rule.MaxCount(limit=2)))

    await made.agent.send("hi")

    request = made.agent.model.calls[0].request
    assert "Call first at most 2 times." in request.system
    assert not request.parallel
