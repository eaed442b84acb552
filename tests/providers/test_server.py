"""The whole server with models behind the vendors' APIs: tools, cancel, errors."""

from pathlib import Path

import pytest

from common.pb.bridle.v1.model_pb2 import ModelSettings
from common.pb.bridle.v1.run_pb2 import Run
from common.pb.bridle.v1.stop_reason_pb2 import StopReason
from services.fakellm.scripts import (
    Answer,
    Api,
    Call,
    Failure,
    Fault,
    FaultKind,
    Finish,
    Refuse,
    Say,
    Think,
    Usage,
    say,
)
from tests.helpers.fakellm import FakeLlm
from tests.providers.serving import agent_on, cancelled_while_streaming, every_api


@every_api
async def test_a_run_with_tools(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(
        Answer(
            (Think("dice!", "sealed"), Say("Let me roll."), Call("roll_dice", {"sides": 6}), Call("roll_dice", '{"si')),
            usage=Usage(100, 20, 60, 0, 5),
        ),
        Answer((Say("Done."),), usage=Usage(150, 10, 100, 0, 0)),
        say("Bye."),
    )
    async with agent_on(api, fake, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("roll twice"))
        assert run.state == Run.STATE_COMPLETED
        assert (run.usage.input_tokens, run.usage.output_tokens, run.usage.cached_input_tokens) == (250, 30, 160)
        assert run.usage.reasoning_tokens == 5
        assert not run.usage.estimated
        # The fake refuses a conversation in which a call is apart from its return.
        run = await agent.world.wait_for(await agent.start("bye"))
        assert run.state == Run.STATE_COMPLETED
    assert b"not a JSON object" in fake.requests[1].raw_body


@every_api
async def test_cancel_closes_the_provider_s_connection(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(say(tokens=10_000, token_delay=0.02), say("I am still here."))
    async with agent_on(api, fake, tmp_path) as agent:
        stopped = await cancelled_while_streaming(agent)
        assert stopped.state == Run.STATE_CANCELLED
        assert await fake.requests[0].wait_end() == "client_closed"
        assert fake.requests[0].tokens_sent < 1000
        again = await agent.world.wait_for(await agent.start("hello?"))
        assert again.state == Run.STATE_COMPLETED


@every_api
@pytest.mark.parametrize(
    "script", [Failure(401), say(tokens=5, fault=Fault(FaultKind.CUT, after=2))], ids=["refused", "cut"]
)
async def test_an_error_leaves_a_usable_agent(
    api: Api, script: Answer | Failure, fake: FakeLlm, tmp_path: Path
) -> None:
    fake.will(script, say("I am back."))
    async with agent_on(api, fake, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("hello"))
        assert run.state == Run.STATE_FAILED
        assert run.error.type == ("llm_authentication" if isinstance(script, Failure) else "llm_error")
        again = await agent.world.wait_for(await agent.start("hello?"))
        assert again.state == Run.STATE_COMPLETED


STOPS = {
    "max tokens": (Answer((Say("Once"),), finish=Finish.LENGTH), StopReason.STOP_REASON_MAX_TOKENS_EXCEEDED),
    "refusal": (Answer((Refuse("I will not."),)), StopReason.STOP_REASON_REFUSAL),
    "filter": (Answer((Say("Well"),), finish=Finish.CONTENT_FILTER), StopReason.STOP_REASON_REFUSAL),
    "no credit": (Failure(429, kind="quota"), StopReason.STOP_REASON_INSUFFICIENT_CREDITS),
    "bad request": (Failure(400), StopReason.STOP_REASON_LLM_API_ERROR),
}


@every_api
@pytest.mark.parametrize(("script", "reason"), STOPS.values(), ids=STOPS)
async def test_every_bad_end_has_its_reason(
    api: Api, script: Answer | Failure, reason: StopReason.ValueType, fake: FakeLlm, tmp_path: Path
) -> None:
    fake.will(script, say("I am back."))
    async with agent_on(api, fake, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("hello"))
        assert (run.state, run.stop_reason) == (Run.STATE_FAILED, reason)
        assert run.error.message
        again = await agent.world.wait_for(await agent.start("hello?"))
        assert again.state == Run.STATE_COMPLETED


@every_api
async def test_an_empty_answer_is_tried_again_and_then_has_its_reason(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(*[Answer()] * 4)
    async with agent_on(api, fake, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("hello"), timeout=15)
        assert run.stop_reason == StopReason.STOP_REASON_INVALID_LLM_RESPONSE
        assert run.error.type == "llm_empty_response"
    assert len(fake.requests) == 4


@every_api
async def test_an_agent_s_settings_reach_the_provider(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    settings = ModelSettings(temperature=0.25, max_output_tokens=77, parallel_tool_calls=False)
    async with agent_on(api, fake, tmp_path, model_settings=settings) as agent:
        run = await agent.world.wait_for(await agent.start("hello"))
        assert run.state == Run.STATE_COMPLETED
    sent = fake.requests[0].body
    limit = {Api.CHAT: "max_tokens", Api.RESPONSES: "max_output_tokens", Api.MESSAGES: "max_tokens"}[api]
    assert (sent["temperature"], sent[limit]) == (0.25, 77)
    if api is Api.MESSAGES:
        assert sent["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    else:
        assert sent["parallel_tool_calls"] is False
