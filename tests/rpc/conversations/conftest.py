"""The real server for each file of tests, on SQLite and on Postgres; each test has an agent of its own."""

from collections.abc import AsyncIterator

import pytest

from tests.helpers.database import DatabaseFactory
from tests.helpers.inprocess import AgentClient, World, running_world
from tests.helpers.models import Gate, ProbeTool
from tests.rpc.conversations.rig import Conversations


@pytest.fixture(scope="module")
def slow_tool() -> ProbeTool:
    """The tool that the server has beside the built-in ones."""
    return ProbeTool("slow")


@pytest.fixture(scope="module")
async def world(databases: DatabaseFactory, slow_tool: ProbeTool) -> AsyncIterator[World]:
    """A server and a client of it."""
    url = await databases.create()
    async with running_world(url, [slow_tool.tool]) as made:
        yield made
    await databases.drop(url)


@pytest.fixture
def slow(slow_tool: ProbeTool) -> ProbeTool:
    """A tool that does not return before its gate is opened."""
    slow_tool.gate = Gate()
    return slow_tool


@pytest.fixture
def conversations(world: World) -> Conversations:
    """A client of the service."""
    return Conversations(world)


@pytest.fixture
async def agent(world: World) -> AgentClient:
    """An agent that has the tool."""
    return await world.make_agent(["slow"])
