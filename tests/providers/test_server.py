"""The whole server with models behind the vendors' APIs: tools, cancel, errors."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc.aio
import httpx2
import pytest

from common.pb.bridle.v1 import agent_pb2, agent_service_pb2
from common.pb.bridle.v1.run_pb2 import Run
from common.settings import Settings
from services.app import Parts, running
from services.fakellm.scripts import Answer, Call, Failure, Fault, FaultKind, Say, Think, Usage, say
from services.models.environment import providers
from services.models.registry import ProviderModels
from tests.helpers.fakellm import FakeLlm
from tests.helpers.inprocess import AgentClient, World
from tests.helpers.models import ScriptedModels

every_handle = pytest.mark.parametrize("handle", ["openai/gpt-4o-mini", "anthropic/claude-sonnet-4-5"])


@asynccontextmanager
async def agent_on(handle: str, fake: FakeLlm, http: httpx2.AsyncClient, folder: Path) -> AsyncIterator[AgentClient]:
    """An agent of a server that finds its models by the standard variables."""
    environ = {
        "OPENAI_API_KEY": "k",
        "OPENAI_BASE_URL": fake.openai_base_url,
        "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_BASE_URL": fake.anthropic_base_url,
    }
    settings = Settings.from_env(
        {
            "BRIDLE_GRPC_ADDRESS": "127.0.0.1:0",
            "BRIDLE_HTTP_ADDRESS": "127.0.0.1:0",
            "BRIDLE_DATA_DIR": str(folder),
            "BRIDLE_DRAIN_SECONDS": "0",
        }
    )
    async with (
        running(settings, Parts(models=ProviderModels(providers(environ, http)))) as serving,
        grpc.aio.insecure_channel(serving.grpc_address) as channel,
    ):
        scripted = ScriptedModels()
        world = World(channel, scripted, serving.node)
        agent = agent_pb2.Agent(model=handle)
        request = agent_service_pb2.CreateAgentRequest(agent=agent, tool_names=["roll_dice", "wait"])
        yield AgentClient(world, await world.agents.CreateAgent(request, timeout=10), scripted.make())


@every_handle
async def test_a_run_with_tools(handle: str, fake: FakeLlm, http: httpx2.AsyncClient, tmp_path: Path) -> None:
    fake.will(
        Answer(
            (Think("dice!", "sealed"), Say("Let me roll."), Call("roll_dice", {"sides": 6}), Call("roll_dice", '{"si')),
            usage=Usage(100, 20, 60, 0, 5),
        ),
        Answer((Say("Done."),), usage=Usage(150, 10, 100, 0, 0)),
        say("Bye."),
    )
    async with agent_on(handle, fake, http, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("roll twice"))
        assert run.state == Run.STATE_COMPLETED
        assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.cached_input_tokens) == (250, 30, 160)
        assert run.usage.reasoning_tokens == 5
        assert not run.usage.estimated
        # The fake refuses a conversation in which a call is apart from its return.
        run = await agent.world.wait_for(await agent.start("bye"))
        assert run.state == Run.STATE_COMPLETED
    assert b"not a JSON object" in fake.requests[1].raw_body


@every_handle
async def test_cancel_closes_the_provider_s_connection(
    handle: str, fake: FakeLlm, http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    fake.will(say(tokens=10_000, token_delay=0.02), say("I am still here."))
    async with agent_on(handle, fake, http, tmp_path) as agent:
        run_id = await agent.start("count")
        stream = agent.world.follow(run_id)
        async for response in stream:
            if response.event.HasField("text_delta"):
                break
        stream.cancel()
        stopped = await agent.world.cancel(run_id)
        assert stopped.state == Run.STATE_CANCELLED
        assert await fake.requests[0].wait_end() == "client_closed"
        assert fake.requests[0].tokens_sent < 1000
        again = await agent.world.wait_for(await agent.start("hello?"))
        assert again.state == Run.STATE_COMPLETED


@every_handle
@pytest.mark.parametrize(
    "script", [Failure(401), say(tokens=5, fault=Fault(FaultKind.CUT, after=2))], ids=["refused", "cut"]
)
async def test_an_error_leaves_a_usable_agent(
    handle: str, script: Answer | Failure, fake: FakeLlm, http: httpx2.AsyncClient, tmp_path: Path
) -> None:
    fake.will(script, say("I am back."))
    async with agent_on(handle, fake, http, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("hello"))
        assert run.state == Run.STATE_FAILED
        assert run.error.type == ("llm_authentication" if isinstance(script, Failure) else "llm_error")
        again = await agent.world.wait_for(await agent.start("hello?"))
        assert again.state == Run.STATE_COMPLETED
