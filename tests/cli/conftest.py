"""Fixtures: one real server for the suite, and `bridle` as a process."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

import grpc.aio
import pytest
import pytest_asyncio

from common.pb.bridle.v1 import agent_pb2, agent_service_pb2, agent_service_pb2_grpc, tool_rule_pb2
from tests.helpers.server import BRIDLE, ServerProcess, environment, running_server

DICE = "roll_dice"


@dataclass
class Finished:
    """A process that has ended."""

    code: int
    out: str
    err: str


Bridle = Callable[..., Awaitable[Finished]]
MakeAgent = Callable[..., Awaitable[str]]


@pytest_asyncio.fixture(scope="session")
async def server() -> AsyncIterator[ServerProcess]:
    """A server that every test of the suite talks to; agents are what keeps them apart."""
    async with running_server() as process:
        yield process


@pytest.fixture
def bridle() -> Bridle:
    """Run `bridle` to its end, with this on stdin (None: nothing to read) and these settings."""

    async def run(*argv: str, stdin: str | None = None, **settings: str) -> Finished:
        done = await asyncio.to_thread(
            subprocess.run,
            [*BRIDLE, *argv],
            env=environment(**settings),
            input=stdin if stdin is not None else "",
            capture_output=True,
            text=True,
            timeout=15,
            check=False,
        )
        return Finished(done.returncode, done.stdout, done.stderr)

    return run


@pytest_asyncio.fixture
async def make_agent(server: ServerProcess) -> AsyncIterator[MakeAgent]:
    """Make an agent with tools, of which some need approval; its id."""
    async with grpc.aio.insecure_channel(server.grpc_address) as channel:
        agents = agent_service_pb2_grpc.AgentServiceStub(channel)

        async def make(*tools: str, approve: tuple[str, ...] = ()) -> str:
            rules = [
                tool_rule_pb2.ToolRule(tool_name=name, requires_approval=tool_rule_pb2.ToolRule.RequiresApproval())
                for name in approve
            ]
            request = agent_service_pb2.CreateAgentRequest(
                agent=agent_pb2.Agent(name="test", tool_rules=rules), tool_names=tools
            )
            return (await agents.CreateAgent(request, timeout=5)).id

        yield make
