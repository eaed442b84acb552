"""What a dry run shows against what the provider then receives, byte for byte."""

import json
from pathlib import Path

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from common.pb.bridle.v1 import message_service_pb2
from services.fakellm.scripts import Answer, Api, Call, Say, Think, say
from services.models.environment import providers
from services.models.limits import Limited
from services.models.metrics import ModelMetrics
from services.models.retry import Retrying
from tests.helpers.fakellm import FakeLlm
from tests.helpers.providers import KEY, ask, collect, provider_of
from tests.providers.serving import agent_on, every_api


@every_api
async def test_the_body_is_the_one_that_is_sent(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(
        Answer((Think("hm", "sealed"), Say("Rolling."), Call("roll_dice", {"sides": 6}))), say("Done."), say("Bye.")
    )
    async with agent_on(api, fake, tmp_path) as agent:
        await agent.send("roll")
        asked = len(fake.requests)
        wanted = message_service_pb2.PreviewMessageRequest(run=agent.request("bye"))
        shown = await agent.world.messages.PreviewMessage(wanted, timeout=10)
        assert len(fake.requests) == asked, "nothing was sent"
        await agent.send("bye")
    assert shown.request.encode() == fake.requests[asked].raw_body
    assert json.loads(shown.request)["model"]
    assert shown.provider


@pytest.mark.parametrize("api", list(Api))
async def test_every_api_says_what_it_sends_and_no_secret(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> None:
    provider = Limited(Retrying(provider_of(api, fake, http)))
    fake.will(say("hi"))
    body = provider.preview(ask())
    await collect(provider, ask())
    assert body == fake.requests[0].raw_body
    assert KEY.encode() not in body


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_body_needs_no_key(name: str, http: httpx2.AsyncClient) -> None:
    provider = providers({}, http, ModelMetrics(CollectorRegistry()))[name].provider
    assert json.loads(provider.preview(ask()))["model"] == "gpt-5"
