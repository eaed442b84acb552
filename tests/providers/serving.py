"""The whole server, with agents on models behind each of the vendors' APIs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from common.pb.bridle.v1 import agent_pb2, agent_service_pb2, run_pb2
from common.settings import Settings
from services.app import Parts, running
from services.fakellm.scripts import Api
from tests.helpers.fakellm import FakeLlm
from tests.helpers.inprocess import AgentClient, World
from tests.helpers.models import ScriptedModels

every_api = pytest.mark.parametrize("api", list(Api))
HANDLES = {
    Api.CHAT: "openai/gpt-4o-mini",
    Api.RESPONSES: "openai/gpt-4o-mini",
    Api.MESSAGES: "anthropic/claude-sonnet-4-5",
}
KEY = "sk-secret-1234567890"


@asynccontextmanager
async def serving(fake: FakeLlm, folder: Path, **settings: str) -> AsyncIterator[World]:
    """A server that finds its models by the standard variables."""
    environ = {
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": fake.openai_base_url,
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": fake.anthropic_base_url,
    }
    given = {
        "BRIDLE_GRPC_ADDRESS": "127.0.0.1:0",
        "BRIDLE_HTTP_ADDRESS": "127.0.0.1:0",
        "BRIDLE_DATA_DIR": str(folder),
        "BRIDLE_DRAIN_SECONDS": "0",
        **settings,
    }
    async with (
        running(Settings.from_env(given), Parts(environ=environ)) as server,
        grpc.aio.insecure_channel(server.grpc_address) as channel,
    ):
        yield World(channel, ScriptedModels(), server.node)


async def make_agent(world: World, model: str, **fields: Any) -> AgentClient:
    """An agent with two of the built-in tools."""
    agent = agent_pb2.Agent(model=model, **fields)
    request = agent_service_pb2.CreateAgentRequest(agent=agent, tool_names=["roll_dice", "wait"])
    return AgentClient(world, await world.agents.CreateAgent(request, timeout=10), world.models.make())


@asynccontextmanager
async def agent_on(
    api: Api, fake: FakeLlm, folder: Path, settings: dict[str, str] | None = None, **fields: Any
) -> AsyncIterator[AgentClient]:
    """An agent whose model is spoken to by this API."""
    choice = {"BRIDLE_OPENAI_API": "responses"} if api is Api.RESPONSES else {}
    async with serving(fake, folder, **choice, **(settings or {})) as world:
        yield await make_agent(world, HANDLES[api], **fields)


async def cancelled_while_streaming(agent: AgentClient) -> run_pb2.Run:
    """A run that is cancelled once some of its text was seen."""
    run_id = await agent.start("count")
    stream = agent.world.follow(run_id)
    async for response in stream:
        if response.event.HasField("text_delta"):
            break
    stream.cancel()
    return await agent.world.cancel(run_id)
