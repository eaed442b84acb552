"""Trying tools without a run, and calling Python tools in one; the sandbox here is told what to answer."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from common.ids import Prefix, new_id
from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.tool_pb2 import PythonTool, Tool
from services.sandbox.model import Mode, Reason, Result
from services.tools.builtin import BUILTIN_TOOLS
from tests.helpers.database import DatabaseFactory
from tests.helpers.inprocess import Run, World, approve, invalid, not_found, return_text, returns_of, running_world
from tests.helpers.missing import missing
from tests.helpers.models import Gate, ProbeTool, call, calls, say
from tests.helpers.sandbox import ScriptedSandbox
from tests.helpers.wait import eventually
from tests.rpc.tools.rig import Tools, source_of, struct

DICE = BUILTIN_TOOLS[0].definition
_SUM = '''
def total(numbers: list[int]) -> int:
    """Add numbers.

    Args:
        numbers: What to add.
    """
    print(len(numbers), "numbers")
    if max(numbers) >= 10**6:
        raise ValueError("too large")
    return sum(numbers)
'''
FAILED, SUCCEEDED = ToolReturn.OUTCOME_FAILED, ToolReturn.OUTCOME_SUCCEEDED


@pytest.fixture
def sandbox() -> ScriptedSandbox:
    return ScriptedSandbox()


@pytest.fixture
async def world(databases: DatabaseFactory, sandbox: ScriptedSandbox) -> AsyncIterator[World]:
    """A server whose sandbox does as it is told, and which allows pip requirements."""
    url = await databases.create()
    probe = ProbeTool("probe", returns="x" * 100, return_char_limit=10)
    async with running_world(url, [probe.tool], {"BRIDLE_TOOL_REQUIREMENTS": "true"}, sandbox=sandbox) as made:
        yield made
    await databases.drop(url)


@pytest.fixture
def tools(world: World) -> Tools:
    return Tools(world)


async def test_a_tool_is_tried_without_an_agent(tools: Tools, sandbox: ScriptedSandbox) -> None:
    sandbox.result = Result(Reason.OK, value="[3]", stdout="adding\n", stderr="slowly\n")
    tool = await tools.upsert(source_of("add"), pip_requirements=["numpy==2.1.0", "pkg[extra]==1!2.0+local"])
    result = await tools.run(tool.id, a=1)
    assert (result.tool_name, result.outcome, return_text(result)) == ("add", SUCCEEDED, "[3]")
    assert (list(result.stdout), list(result.stderr)) == (["adding"], ["slowly"])
    (job,) = sandbox.jobs
    assert (job.function, job.arguments, job.wall_seconds) == ("add", '{"a":1}', 60.0)
    assert job.requirements == ("numpy==2.1.0", "pkg[extra]==1!2.0+local")
    assert job.env == {"BRIDLE_TOOL_CALL_ID": result.tool_call_id}


async def test_a_tool_is_tried_with_an_agent(tools: Tools, world: World, sandbox: ScriptedSandbox) -> None:
    tool, agent = await tools.upsert(source_of("add"), default_requires_approval=True), await world.make_agent()
    result = await tools.run(tool.id, agent.id, a=1)
    assert return_text(result) == "done"
    assert sandbox.jobs[0].env["BRIDLE_AGENT_ID"] == agent.id
    assert await agent.log() == [], "a trial is nobody's turn"


async def test_builtin_tools_can_be_tried_too(tools: Tools) -> None:
    assert 1 <= int(return_text(await tools.run(DICE.id, sides=6))) <= 6
    (probe,) = (await tools.stub.ListTools(tools.listing(names=["probe"]), timeout=10)).tools
    assert return_text(await tools.run(probe.id)) == "x" * 10 + "... [truncated 90 chars]"
    failed = await tools.run(DICE.id, sides=1)
    assert (failed.outcome, return_text(failed)) == (FAILED, "Error: sides must be a whole number from 2 to 1000")


async def test_arguments_that_do_not_fit_are_an_outcome(tools: Tools, sandbox: ScriptedSandbox) -> None:
    tool = await tools.upsert(source_of("add"))
    result = await tools.run(tool.id, a="one", c=2)
    assert result.outcome == FAILED
    assert return_text(result) == (
        "Error: the arguments do not fit: 'c' is not a parameter; 'a' must be a whole number"
    )
    assert sandbox.jobs == []


async def test_a_trial_names_what_is_wrong_with_it(tools: Tools) -> None:
    tool = await tools.upsert(source_of("add"))
    nobody = new_id(Prefix.AGENT)
    assert await not_found(tools.run(tool.id, nobody)) == ("agent", nobody)
    assert await invalid(tools.run("x", "y")) == ["tool_id", "agent_id"]
    assert await invalid(tools.run(tool.id, a="x" * 1_100_000)) == ["arguments"]
    assert await invalid(tools.run(tool.id, a=float("nan"))) == ["arguments"]


async def test_who_hangs_up_stops_the_tool(tools: Tools, sandbox: ScriptedSandbox) -> None:
    sandbox.gate = Gate()
    tool = await tools.upsert(source_of("add"))
    trial = asyncio.ensure_future(tools.run(tool.id, a=1))
    await sandbox.gate.reached()
    trial.cancel()
    await eventually(lambda: sandbox.killed == 1)


async def test_requirements_can_be_changed_alone(tools: Tools) -> None:
    tool = await tools.upsert(source_of("add"), pip_requirements=["a==1"])
    changed = await tools.update(Tool(id=tool.id, python=PythonTool(pip_requirements=["b==2"])))
    assert (list(changed.python.pip_requirements), changed.python.source) == (["b==2"], tool.python.source)
    kept = await tools.upsert(source_of("add", "Changed."))
    assert list(kept.python.pip_requirements) == ["b==2"]
    bad = PythonTool(pip_requirements=["b>2", "git+https://x/y", "a==1", "a==1"])
    assert await invalid(tools.update(Tool(id=tool.id, python=bad))) == [
        f"tool.python.pip_requirements[{number}]" for number in (0, 1, 3)
    ]


async def test_a_run_calls_it_and_is_told_what_it_returned(
    tools: Tools, world: World, sandbox: ScriptedSandbox
) -> None:
    await tools.upsert(source_of("add"))
    agent = await world.make_agent(["add"])
    agent.model.will(call("add", "c-1", a=1), say("two"))
    sent = await agent.send("add")
    assert (sent.run.state, list(sent.run.tools_used)) == (Run.STATE_COMPLETED, ["add"])
    (offered,) = agent.model.calls[0].request.tools
    assert (offered.name, offered.description, offered.parameters["required"]) == ("add", "Adds.", ["a"])
    (returned,) = returns_of(await agent.log())
    assert (returned.outcome, return_text(returned)) == (SUCCEEDED, "done")
    assert sandbox.jobs[0].env == {
        "BRIDLE_TOOL_CALL_ID": "c-1",
        "BRIDLE_RUN_ID": sent.run.id,
        "BRIDLE_AGENT_ID": agent.id,
        "LETTA_AGENT_ID": agent.id,
    }


async def test_its_approval_default_holds(tools: Tools, world: World, sandbox: ScriptedSandbox) -> None:
    tool = await tools.upsert(source_of("add"), default_requires_approval=True)
    agent = await world.make_agent()
    await tools.attach(agent.id, tool.id)
    agent.model.will(call("add", "c-1", a=1), say("done"))
    approval = await agent.ask()
    assert sandbox.jobs == []
    await world.answer(approve("c-1"), approval_id=approval.id)
    await world.wait_for(approval.run_id)
    assert len(sandbox.jobs) == 1


async def test_cancel_reaches_it(tools: Tools, world: World, sandbox: ScriptedSandbox) -> None:
    sandbox.gate = Gate()
    await tools.upsert(source_of("add"))
    agent = await world.make_agent(["add"])
    agent.model.will(call("add", "c-1", a=1))
    run_id = await agent.start("add")
    await sandbox.gate.reached()
    assert (await world.cancel(run_id)).state == Run.STATE_CANCELLED
    assert sandbox.killed == 1


async def test_parallel_calls_run_side_by_side_if_the_tool_allows(
    tools: Tools, world: World, sandbox: ScriptedSandbox
) -> None:
    sandbox.gate = Gate()
    await tools.upsert(source_of("add"), parallel=True)
    agent = await world.make_agent(["add"])
    agent.model.will(calls(("add", "c-1", {"a": 1}), ("add", "c-2", {"a": 2})), say("done"))
    run_id = await agent.start("add both")
    await eventually(lambda: len(sandbox.jobs) == 2)
    sandbox.gate.open()
    assert (await world.wait_for(run_id)).state == Run.STATE_COMPLETED


async def test_a_tool_that_takes_too_long_is_stopped(tools: Tools, world: World, sandbox: ScriptedSandbox) -> None:
    sandbox.result = Result(Reason.TIMEOUT, stdout="so far")
    limit = Tool(python=PythonTool(source=source_of("add")))
    limit.timeout.FromMilliseconds(1500)
    tool = await tools.put(limit)
    result = await tools.run(tool.id, a=1)
    assert return_text(result) == "Error: the tool did not finish within 1.5 s and was stopped"
    assert (result.outcome, list(result.stdout)) == (FAILED, ["so far"])
    assert sandbox.jobs[0].wall_seconds == 1.5


async def test_a_call_in_the_real_sandbox(databases: DatabaseFactory) -> None:
    url = await databases.create()
    async with running_world(url, sandbox=None) as world:
        tools = Tools(world)
        tool = await tools.upsert(_SUM)
        agent = await world.make_agent(["total"])
        agent.model.will(call("total", "c-1", numbers=[1, 2, 3]), say("six"))
        assert (await agent.send("add")).run.state == Run.STATE_COMPLETED
        (returned,) = returns_of(await agent.log())
        if lacking := world.node.sandbox.walls().lacking(Mode.MINIMUM):
            missing(f"walls of the sandbox do not stand here: {sorted(lacking)}")
        for each in (returned, await tools.run(tool.id, numbers=[1, 2, 3])):
            assert (each.outcome, return_text(each), list(each.stdout)) == (SUCCEEDED, "6", ["3 numbers"])
        failed = await tools.run(tool.id, numbers=[1, 10**6])
        assert failed.outcome == FAILED
        assert return_text(failed).endswith("ValueError: too large")
    await databases.drop(url)


async def test_a_server_without_walls_refuses_with_a_clear_error(
    databases: DatabaseFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.sandbox.zygote._PROGRAM", "raise SystemExit(3)")
    url = await databases.create()
    async with running_world(url, sandbox=None) as world:
        tool = await Tools(world).upsert(source_of("add"))
        refused = await Tools(world).run(tool.id, a=1)
        assert refused.outcome == FAILED
        assert return_text(refused).startswith(
            "Error: Python tools do not run here: these walls of the sandbox are missing"
        )
    await databases.drop(url)


async def test_a_tool_survives_the_server(databases: DatabaseFactory, sandbox: ScriptedSandbox) -> None:
    url = await databases.create()
    async with running_world(url, sandbox=sandbox) as world:
        tool = await Tools(world).upsert(source_of("add"), metadata=struct(a=[1, None]))
    async with running_world(url, sandbox=sandbox) as world:
        assert await Tools(world).get(tool.id) == tool
        assert return_text(await Tools(world).run(tool.id, a=1)) == "done"
    await databases.drop(url)
