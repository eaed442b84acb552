"""A client of ToolService that says a lot in one line, and calls as a run makes them."""

import asyncio
import itertools
import json
from typing import Any

import grpc

from common.ids import DEFAULT_ORGANIZATION
from common.pb.bridle.v1 import tool_pb2
from common.pb.bridle.v1 import tool_service_pb2 as api
from common.telemetry import names
from services.messages.model import Outcome, ToolCall, ToolReturn
from services.tools.api import Mcp, Remote, ToolContext, ToolDefinition
from tests.helpers.inprocess import World, refused

ORGANIZATION = DEFAULT_ORGANIZATION
_numbers = itertools.count()


class Servers:
    """Tool servers of one server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stub: Any = world.tools
        self.names: list[str] = []

    async def put(self, name: str = "", **fields: Any) -> tool_pb2.ToolServer:
        """Register one."""
        server = tool_pb2.ToolServer(name=name or f"server-{next(_numbers)}", **fields)
        self.names.append(server.name)
        stored: tool_pb2.ToolServer = await self.stub.PutToolServer(api.PutToolServerRequest(server=server), timeout=10)
        return stored

    async def grpc(self, target: str, name: str = "", **fields: Any) -> str:
        """Register a ToolExecutor; its name."""
        fields.setdefault("plaintext", "ca_pem" not in fields)
        return (await self.put(name, grpc=tool_pb2.ToolServer.Grpc(target=target, **fields))).name

    async def stdio(self, command: list[str], name: str = "", **env: str) -> str:
        """Register an MCP server that is a program; its name."""
        return (await self.put(name, mcp_stdio=tool_pb2.ToolServer.McpStdio(command=command, env=env))).name

    async def http(self, url: str, name: str = "", **headers: str) -> str:
        """Register an MCP server over HTTP; its name."""
        return (await self.put(name, mcp_http=tool_pb2.ToolServer.McpHttp(url=url, headers=headers))).name

    async def page(self, **fields: Any) -> tuple[list[tool_pb2.ToolServer], str]:
        answer = await self.stub.ListToolServers(api.ListToolServersRequest(**fields), timeout=10)
        return list(answer.servers), answer.next_page_token

    async def sync(self, name: str) -> dict[str, tool_pb2.Tool]:
        """Its tools, by name."""
        answer = await self.stub.SyncToolServer(api.SyncToolServerRequest(name=name), timeout=15)
        return {tool.name: tool for tool in answer.tools}

    async def refused_sync(self, name: str) -> str:
        """Why its tools cannot be had."""
        metadata = await refused(self.sync(name), grpc.StatusCode.FAILED_PRECONDITION, "TOOL_SERVER_FAILED")
        assert metadata["server"] == name
        return metadata["cause"]

    def counted(self, kind: str, outcome: str) -> float:
        """How many calls have ended so."""
        labels = {"kind": kind, "outcome": outcome}
        return self.world.node.registry.get_sample_value(names.TOOL_SERVER_CALLS, labels) or 0.0

    def connections(self, kind: str) -> dict[str, float | None]:
        """How many servers of a kind are in use, by their health."""
        sample = self.world.node.registry.get_sample_value
        return {
            state: sample(names.TOOL_SERVER_CONNECTIONS, {"kind": kind, "state": state})
            for state in ("healthy", "unhealthy")
        }

    async def delete(self, name: str) -> None:
        await self.stub.DeleteToolServer(api.DeleteToolServerRequest(name=name), timeout=15)
        self.names = [each for each in self.names if each != name]

    async def forget(self) -> None:
        for name in {server.name for server in (await self.page(page_size=1000))[0]}:
            await self.delete(name)

    async def call(self, server: str, tool: str, **how: Any) -> ToolReturn:
        """Call a tool as a run does."""
        return await Calling(self.world, server, tool, **how).result()


class Calling:
    """A call that is under way."""

    def __init__(
        self,
        world: World,
        server: str,
        tool: str,
        *,
        mcp: bool = True,
        timeout: float | None = 10.0,
        call_id: str = "call-1",
        **arguments: Any,
    ) -> None:
        self.progress: list[str] = []
        kind = Mcp(server) if mcp else Remote(server)
        definition = ToolDefinition("tool-1", tool, "", {}, kind=kind, timeout=timeout)
        self.call = ToolCall(call_id, tool, json.dumps(arguments))
        context = ToolContext(ORGANIZATION, "agent-1", "run-1", call_id, self.progress.append)
        self.task = asyncio.create_task(world.node.server_tools.run(definition, self.call, context))

    async def result(self) -> ToolReturn:
        """What came of it."""
        returned = await self.task
        assert (returned.call_id, returned.name) == (self.call.id, self.call.name)
        return returned

    async def cancel(self) -> None:
        """Stop it, and wait until it has stopped."""
        self.task.cancel()
        await asyncio.wait({self.task})
        assert self.task.cancelled()


def failure(returned: ToolReturn) -> str:
    """Why a call failed."""
    assert returned.outcome is Outcome.FAILED, returned
    return returned.text
