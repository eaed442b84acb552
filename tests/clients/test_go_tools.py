"""The tool server in Go, built with stock tools, called by an agent's runs."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from common.pb.bridle.v1 import tool_pb2
from common.pb.bridle.v1 import tool_service_pb2 as api
from tests.clients.build import Example, build_go_tools
from tests.helpers.database import database_factory
from tests.helpers.inprocess import (
    Run,
    World,
    approve,
    assert_sound,
    read_until,
    result,
    return_text,
    returns_of,
    running_world,
)
from tests.helpers.mcp_http import mcp_over_http
from tests.helpers.mcp_server import Record
from tests.helpers.models import call, calls, say
from tests.helpers.server import free_address
from tests.helpers.wait import eventually

# The first test also builds it.
pytestmark = pytest.mark.timeout(300)


class Tools:
    """The running server, and what it has logged."""

    def __init__(self, process: asyncio.subprocess.Process, address: str) -> None:
        self.process = process
        self.address = address
        self.log = ""

    async def read(self) -> None:
        """Keep reading its log."""
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(4096):
            self.log += chunk.decode()

    async def logged(self, text: str) -> None:
        """Until it has logged this."""
        await eventually(lambda: text in self.log)


@asynccontextmanager
async def running_tools(example: Example, address: str) -> AsyncIterator[Tools]:
    process = await asyncio.create_subprocess_exec(*example.command, address, stderr=asyncio.subprocess.PIPE)
    tools = Tools(process, address)
    reading = asyncio.create_task(tools.read())
    try:
        await tools.logged("serving tools on")
        yield tools
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


@pytest.fixture(scope="module")
def example() -> Example:
    return build_go_tools()


@pytest.fixture
async def tools(example: Example) -> AsyncIterator[Tools]:
    async with running_tools(example, free_address()) as made:
        yield made


@pytest.fixture
async def world(tools: Tools) -> AsyncIterator[World]:
    """A server that knows its tools."""
    async with database_factory("sqlite") as databases, running_world(await databases.create()) as made:
        server = tool_pb2.ToolServer(name="go", grpc=tool_pb2.ToolServer.Grpc(target=tools.address, plaintext=True))
        await made.tools.PutToolServer(api.PutToolServerRequest(server=server), timeout=10)
        synced = await made.tools.SyncToolServer(api.SyncToolServerRequest(name="go"), timeout=10)
        assert [tool.name for tool in synced.tools] == ["countdown", "shout"]
        yield made


async def test_a_run_calls_it(world: World) -> None:
    agent = await world.make_agent(["shout", "countdown"])
    agent.model.will(
        calls(("shout", "c-1", {"text": "hello"}), ("shout", "c-2", {}), ("countdown", "c-3", {"from": 1})), say("done")
    )
    sent = await agent.send("do it")
    assert sent.run.state == Run.STATE_COMPLETED
    returned = {each.tool_call_id: each for each in returns_of(await agent.log())}
    assert {key: return_text(each) for key, each in returned.items()} == {
        "c-1": "HELLO",
        "c-2": "there is nothing to shout",
        "c-3": "lift-off",
    }
    assert returned["c-2"].outcome == returned["c-2"].OUTCOME_FAILED


async def test_cancelling_a_run_cancels_its_context(world: World, tools: Tools) -> None:
    agent = await world.make_agent(["countdown"])
    agent.model.will(calls(("countdown", "c-1", {"from": 1000})))
    run_id = await agent.start("count")
    events = await read_until(world.follow(run_id), "tool_progress")
    assert events[-1].tool_progress.text == "1000 …"
    run = await world.cancel(run_id)
    assert run.state == Run.STATE_CANCELLED
    await tools.logged("c-1 was stopped: context canceled")


async def test_it_is_found_again_after_a_restart(world: World, tools: Tools, example: Example) -> None:
    agent = await world.make_agent(["shout"])
    tools.process.send_signal(signal.SIGTERM)
    await tools.process.wait()
    agent.model.will(call("shout", text="one"), say("done"))
    await agent.send("do it")
    assert "cannot be reached" in return_text(returns_of(await agent.log())[-1])
    async with running_tools(example, tools.address):

        async def works() -> bool:
            agent.model.will(call("shout", text="two"), say("done"))
            await agent.send("do it")
            return return_text(returns_of(await agent.log())[-1]) == "TWO"

        await eventually(works, timeout=15, interval=0.5)


SUM = '''def add(a: int, b: int) -> int:
    """Adds.

    Args:
        a: One.
        b: The other.
    """
    return a + b
'''


@pytest.fixture
async def everywhere(tools: Tools, tmp_path: Path) -> AsyncIterator[World]:
    """A server with a real sandbox, and with tools of the Go server and of an MCP server."""
    settings = {"BRIDLE_SECRET_KEY": "a key", "BRIDLE_MCP_PRIVATE": "true"}
    async with (
        mcp_over_http(Record(tmp_path / "record")) as http,
        database_factory("sqlite") as databases,
        running_world(await databases.create(), settings=settings, sandbox=None) as made,
    ):
        servers = (
            tool_pb2.ToolServer(name="go", grpc=tool_pb2.ToolServer.Grpc(target=tools.address, plaintext=True)),
            tool_pb2.ToolServer(name="mcp", mcp_http=tool_pb2.ToolServer.McpHttp(url=http.url)),
        )
        for server in servers:
            await made.tools.PutToolServer(api.PutToolServerRequest(server=server), timeout=10)
            await made.tools.SyncToolServer(api.SyncToolServerRequest(name=server.name), timeout=10)
        python = tool_pb2.Tool(python=tool_pb2.PythonTool(source=SUM), default_requires_approval=True, parallel=True)
        await made.tools.UpsertTool(api.UpsertToolRequest(tool=python), timeout=10)
        yield made


async def test_every_kind_of_tool_in_one_turn_with_approvals(everywhere: World) -> None:
    agent = await everywhere.make_agent(["add", "shout", "echo", "roll_dice"])
    agent.model.will(
        calls(
            ("add", "python", {"a": 2, "b": 3}),
            ("shout", "go", {"text": "hello"}),
            ("echo", "mcp", {"text": "said"}),
            ("read_file", "client", {}),
            ("roll_dice", "builtin", {"sides": 6}),
        ),
        say("done"),
    )
    asked = await agent.ask("all of it", client_tools=[tool_pb2.ClientTool(name="read_file")])
    # Nothing runs before a person has answered; who is asked is whoever is behind a rule, and the client.
    assert returns_of(await agent.log()) == []
    assert [each.call.id for each in asked.calls] == ["python", "mcp", "client"]
    await everywhere.answer(approve("python"), approve("mcp"), result("client", "its contents"), approval_id=asked.id)
    run = await everywhere.wait_for(asked.run_id, Run.STATE_COMPLETED, timeout=15)
    returned = {each.tool_call_id: return_text(each) for each in returns_of(await agent.log())}
    assert returned.pop("builtin") in list("123456")
    assert returned == {"python": "5", "go": "HELLO", "mcp": "said", "client": "its contents"}
    assert list(run.tools_used) == ["add", "echo", "read_file", "roll_dice", "shout"]
    await assert_sound(agent)
