"""Agents on a provider that their organization has configured, through the whole server."""

from pathlib import Path

import grpc
import grpc.aio
import pytest

from common.pb.bridle.v1 import model_service_pb2
from common.pb.bridle.v1.agent_pb2 import Agent
from common.pb.bridle.v1.agent_service_pb2 import CreateAgentRequest
from common.pb.bridle.v1.model_pb2 import Provider
from common.pb.bridle.v1.run_pb2 import Run
from services.fakellm.scripts import Api
from tests.helpers.fakellm import FakeLlm
from tests.helpers.inprocess import World
from tests.providers.serving import every_api, make_agent, serving

APIS = {
    Api.CHAT: Provider.API_OPENAI_CHAT,
    Api.RESPONSES: Provider.API_OPENAI_RESPONSES,
    Api.MESSAGES: Provider.API_ANTHROPIC,
}
PATHS = {Api.CHAT: "/v1/chat/completions", Api.RESPONSES: "/v1/responses", Api.MESSAGES: "/v1/messages"}


async def put(world: World, api: Api, fake: FakeLlm, api_key: str = "") -> Provider:
    url = fake.anthropic_base_url if api is Api.MESSAGES else fake.openai_base_url
    provider = Provider(name="mine", api=APIS[api], base_url=url, api_key=api_key)
    made: Provider = await world.providers.PutProvider(
        model_service_pb2.PutProviderRequest(provider=provider), timeout=10
    )
    return made


@every_api
async def test_a_run_and_the_end_of_its_provider(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    async with serving(fake, tmp_path) as world:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await world.agents.CreateAgent(CreateAgentRequest(agent=Agent(model="mine/llama")), timeout=10)
        assert raised.value.code() is grpc.StatusCode.NOT_FOUND
        await put(world, api, fake, api_key="sk-mine")
        agent = await make_agent(world, "mine/llama")
        run = await world.wait_for(await agent.start("hello"))
        assert run.state == Run.STATE_COMPLETED
        assert fake.requests[-1].path == PATHS[api]
        assert fake.requests[-1].body["model"] == "llama"

        await world.providers.DeleteProvider(model_service_pb2.DeleteProviderRequest(name="mine"), timeout=10)
        run = await world.wait_for(await agent.start("hello?"))
        assert (run.state, run.error.type) == (Run.STATE_FAILED, "llm_authentication")
        assert "mine" in run.error.message

        await put(world, api, fake)
        run = await world.wait_for(await agent.start("hello again"))
        assert run.state == Run.STATE_COMPLETED


async def test_a_key_that_cannot_be_read_is_an_error_of_authentication(fake: FakeLlm, tmp_path: Path) -> None:
    async with serving(fake, tmp_path, BRIDLE_SECRET_KEY="one") as world:
        await put(world, Api.CHAT, fake, api_key="sk-mine")
        agent = await make_agent(world, "mine/llama")
    async with serving(fake, tmp_path, BRIDLE_SECRET_KEY="another") as world:
        agent.world = world
        run = await world.wait_for(await agent.start("hello"))
        assert (run.state, run.error.type) == (Run.STATE_FAILED, "llm_authentication")
        assert "BRIDLE_SECRET_KEY" in run.error.message
        await put(world, Api.CHAT, fake, api_key="sk-mine")
        run = await world.wait_for(await agent.start("hello"))
        assert run.state == Run.STATE_COMPLETED
