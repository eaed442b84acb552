"""Tools of other services and of MCP servers, as an agent's runs call them."""

import asyncio

import pytest

from common.pb.bridle.v1 import tool_service_pb2 as api
from common.pb.bridle.v1.tool_pb2 import Tool
from common.settings import SettingsError
from services.messages.model import Outcome
from tests.helpers.database import database_factory
from tests.helpers.executor import ExecutorServer
from tests.helpers.inprocess import (
    Run,
    World,
    approve,
    assert_sound,
    deny,
    invalid,
    kinds,
    read_until,
    rest_of,
    return_text,
    returns_of,
    running_world,
)
from tests.helpers.mcp_http import HttpServer
from tests.helpers.mcp_server import Record
from tests.helpers.models import call, calls, say
from tests.helpers.wait import eventually
from tests.rpc.toolservers.rig import Servers, failure


async def test_tools_of_mcp_servers_wait_for_a_person(servers: Servers, world: World, http: HttpServer) -> None:
    await servers.sync(await servers.http(http.url))
    agent = await world.make_agent(["echo"])
    agent.model.will(calls(("echo", "c-1", {"text": "one"}), ("echo", "c-2", {"text": "two"})), say("done"))
    approval = await agent.ask()
    assert returns_of(await agent.log()) == []
    await world.answer(approve("c-1"), deny("c-2", "no"), approval_id=approval.id)
    await world.wait_for(approval.run_id, Run.STATE_COMPLETED)
    returned = {each.tool_call_id: each for each in returns_of(await agent.log())}
    assert return_text(returned["c-1"]) == "one"
    assert returned["c-2"].outcome == returned["c-2"].OUTCOME_DENIED
    await servers.forget()


async def test_both_kinds_in_parallel_in_one_agent(
    servers: Servers, world: World, executor: ExecutorServer, http: HttpServer
) -> None:
    await servers.sync(await servers.grpc(executor.target, "ours"))
    tools = await servers.sync(await servers.http(http.url, "theirs"))
    assert tools["theirs_echo"].mcp.tool == "echo", "the name was taken"
    agent = await world.make_agent(["echo", "theirs_echo", "roll_dice"])
    agent.model.will(
        calls(("echo", "c-1", {"text": "a"}), ("theirs_echo", "c-2", {"text": "b"}), ("roll_dice", "c-3", {})),
        say("done"),
    )
    approval = await agent.ask()
    assert [each.call.id for each in approval.calls] == ["c-2"]
    await world.answer(approve("c-2"), approval_id=approval.id)
    await world.wait_for(approval.run_id, Run.STATE_COMPLETED)
    returned = {each.tool_call_id: return_text(each) for each in returns_of(await agent.log())}
    assert (returned["c-1"], returned["c-2"]) == ('{"text": "a"}', "b")
    assert [asked.run_id for asked in executor.executor.asked] == [approval.run_id]
    await assert_sound(agent)
    await servers.forget()


async def test_progress_is_shown_and_a_cancel_reaches_the_service(
    servers: Servers, world: World, executor: ExecutorServer
) -> None:
    await servers.sync(await servers.grpc(executor.target))
    agent = await world.make_agent(["slow"])
    agent.model.will(call("slow", "c-1"))
    run_id = await agent.start("do it")
    stream = world.follow(run_id)
    events = await read_until(stream, "tool_progress")
    assert events[-1].tool_progress.text == "waiting"
    run = await world.cancel(run_id)
    assert run.state == Run.STATE_CANCELLED
    await asyncio.wait_for(executor.executor.cancelled.wait(), 5)
    assert kinds(await rest_of(stream))[-1] == "run_stopped"
    await assert_sound(agent)


async def test_progress_is_shown_and_a_cancel_reaches_an_mcp_server(
    servers: Servers, world: World, stdio: list[str], record: Record
) -> None:
    tools = await servers.sync(await servers.stdio(stdio))
    agent = await world.make_agent()
    await world.tools.AttachTool(api.AttachToolRequest(agent_id=agent.id, tool_id=tools["slow"].id), timeout=10)
    guard = api.SetToolApprovalRequest(agent_id=agent.id, tool_name="slow", requires_approval=False)
    await world.tools.SetToolApproval(guard, timeout=10)
    agent.model.will(call("slow", "c-1"))
    run_id = await agent.start("do it")
    stream = world.follow(run_id)
    events = await read_until(stream, "tool_progress", 2)
    assert events[-1].tool_progress.text == "2 of 2"
    run = await world.cancel(run_id)
    assert run.state == Run.STATE_CANCELLED
    await eventually(lambda: record.lines() == ["started", "cancelled"])
    await assert_sound(agent)


async def test_a_tool_can_be_tried(servers: Servers, world: World, http: HttpServer) -> None:
    tools = await servers.sync(await servers.http(http.url))
    request = api.RunToolRequest(tool_id=tools["echo"].id)
    request.arguments.update({"text": "hi"})
    answer = await world.tools.RunTool(request, timeout=10)
    assert return_text(answer.result) == "hi"
    await servers.forget()


async def test_what_a_caller_changes_stays_after_a_sync(servers: Servers, world: World, http: HttpServer) -> None:
    name = await servers.http(http.url)
    echo = (await servers.sync(name))["echo"]
    request = api.UpdateToolRequest(tool=Tool(id=echo.id, tags=["quick"]))
    request.update_mask.paths.extend(["default_requires_approval", "tags"])
    await world.tools.UpdateTool(request, timeout=10)
    after = (await servers.sync(name))["echo"]
    assert (after.default_requires_approval, list(after.tags)) == (False, ["quick"])
    await servers.forget()


async def test_a_deleted_server_takes_its_tools_from_agents(
    servers: Servers, world: World, executor: ExecutorServer
) -> None:
    name = await servers.grpc(executor.target)
    await servers.sync(name)
    agent = await world.make_agent(["echo", "roll_dice"])
    await servers.delete(name)
    assert len((await agent.get()).tool_ids) == 1
    listed = await world.tools.ListTools(api.ListToolsRequest(names=["echo"]), timeout=10)
    assert list(listed.tools) == []


async def test_nothing_is_started_and_nothing_private_is_called_unless_allowed(
    stdio: list[str], http: HttpServer, executor: ExecutorServer
) -> None:
    async with database_factory("sqlite") as databases, running_world(await databases.create()) as world:
        strict = Servers(world)
        assert await invalid(strict.stdio(stdio)) == ["server.mcp_stdio.command"]
        assert await invalid(strict.http(http.url)) == ["server.mcp_http.url"]
        # A name is looked up when it is called.
        name = await strict.http(f"http://127.1:{http.port}/mcp")
        assert "private address" in failure(await strict.call(name, "echo", text="hi"))
        # Other services are where the operator's network is.
        assert (await strict.call(await strict.grpc(executor.target), "echo", mcp=False)).outcome is Outcome.SUCCEEDED
    assert http.requests == []


async def test_a_command_that_is_not_allowed_any_more_is_not_started(stdio: list[str]) -> None:
    async with database_factory("sqlite") as databases:
        url = await databases.create()
        async with running_world(url, settings={"BRIDLE_MCP_COMMANDS": stdio[0]}) as world:
            name = await Servers(world).stdio(stdio)
        async with running_world(url) as world:
            assert "may not be started here" in failure(await Servers(world).call(name, "pid"))
            assert "may not be started here" in await Servers(world).refused_sync(name)


async def test_the_setting_must_be_words() -> None:
    with pytest.raises(SettingsError, match="a quote is not closed"):
        async with running_world("sqlite://", settings={"BRIDLE_MCP_COMMANDS": "uvx 'x"}):
            pass


async def test_a_stopped_server_leaves_no_program_behind(stdio: list[str]) -> None:
    settings = {"BRIDLE_MCP_COMMANDS": stdio[0]}
    async with database_factory("sqlite") as databases:
        async with running_world(await databases.create(), settings=settings) as world:
            servers = Servers(world)
            pid = (await servers.call(await servers.stdio(stdio), "pid")).text
        assert not await asyncio.to_thread(_alive, pid)


def _alive(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/status"):
            return True
    except FileNotFoundError:
        return False
