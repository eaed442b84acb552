"""The real server, and real tool servers for it. What the database does with them is tested in tests/conformance."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.helpers.database import database_factory
from tests.helpers.executor import ExecutorServer, executor_server
from tests.helpers.inprocess import World, running_world
from tests.helpers.mcp_http import HttpServer, mcp_over_http
from tests.helpers.mcp_server import Record
from tests.helpers.server import ROOT
from tests.rpc.toolservers.rig import Servers

PROGRAM = ROOT / "tests" / "helpers" / "mcp_server.py"


@pytest.fixture(scope="module")
async def world() -> AsyncIterator[World]:
    """A server and a client of it."""
    settings = {
        "BRIDLE_SECRET_KEY": "a key",
        "BRIDLE_MCP_COMMANDS": f"{sys.executable} {PROGRAM},/does/not/exist,sleep,echo",
        "BRIDLE_MCP_PRIVATE": "true",
    }
    async with (
        database_factory("sqlite") as databases,
        running_world(await databases.create(), settings=settings) as made,
    ):
        yield made


@pytest.fixture
async def servers(world: World) -> AsyncIterator[Servers]:
    """A client of the service; what a test has registered is forgotten after it."""
    made = Servers(world)
    yield made
    await made.forget()


@pytest.fixture
async def executor() -> AsyncIterator[ExecutorServer]:
    """A ToolExecutor without TLS."""
    async with executor_server() as server:
        yield server


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """What an MCP server has seen."""
    return Record(tmp_path / "record")


@pytest.fixture
def stdio(record: Record) -> list[str]:
    """The command of an MCP server."""
    return [sys.executable, str(PROGRAM), str(record.path)]


@pytest.fixture
async def http(record: Record) -> AsyncIterator[HttpServer]:
    """An MCP server over HTTP."""
    async with mcp_over_http(record) as server:
        yield server
