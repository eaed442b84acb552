"""The bill: what the provider says, call by call and altogether; an estimate only where it said nothing."""

from pathlib import Path

import pytest

from common.pb.bridle.v1.run_pb2 import Run
from common.pb.bridle.v1.usage_pb2 import Usage
from services.fakellm import scripts
from services.fakellm.scripts import Answer, Api, Call, Failure, Fault, FaultKind, Say, Script, say
from tests.helpers.fakellm import FakeLlm
from tests.providers.serving import agent_on, cancelled_while_streaming, every_api

FIRST = scripts.Usage(100, 20, 60, 30, 5)
SECOND = scripts.Usage(150, 10, 100, 7, 0)


def usage(spent: scripts.Usage) -> Usage:
    return Usage(
        input_tokens=spent.input_tokens,
        output_tokens=spent.output_tokens,
        cached_input_tokens=spent.cached_input_tokens,
        cache_write_tokens=spent.cache_write_tokens,
        reasoning_tokens=spent.reasoning_tokens,
    )


@every_api
async def test_every_kind_of_token_is_on_the_step_and_on_the_run(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(Answer((Call("roll_dice", {"sides": 6}),), usage=FIRST), Answer((Say("Done."),), usage=SECOND))
    async with agent_on(api, fake, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("roll"))
        assert run.state == Run.STATE_COMPLETED
        one, two = await agent.world.steps(run.id)
    assert (one.usage, two.usage) == (usage(FIRST), usage(SECOND))
    assert run.usage == usage(scripts.Usage(250, 30, 160, 37, 5))


@every_api
async def test_who_tells_nothing_is_estimated(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(Answer((Say("some words that cost"),), no_usage=True), Answer((Say("ok"),), usage=SECOND))
    async with agent_on(api, fake, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("hello"))
        assert run.usage.estimated
        assert run.usage.input_tokens > 10
        assert run.usage.output_tokens == 4
        told = await agent.world.wait_for(await agent.start("hello"))
        assert told.usage == usage(SECOND)


def check_cut(api: Api, spent: Usage) -> None:
    assert spent.estimated
    assert spent.output_tokens > 1
    if api is Api.MESSAGES:
        # Its first event has the prompt's share.
        assert (spent.input_tokens, spent.cached_input_tokens, spent.cache_write_tokens) == (100, 60, 30)
    else:
        assert spent.input_tokens > 10
        assert (spent.cached_input_tokens, spent.cache_write_tokens) == (0, 0)


@every_api
async def test_a_cancelled_call_is_on_the_bill(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(say(tokens=10_000, token_delay=0.02, usage=FIRST, wire=scripts.Wire(events_per_chunk=5)))
    async with agent_on(api, fake, tmp_path) as agent:
        run = await cancelled_while_streaming(agent)
        [step] = await agent.world.steps(run.id)
    assert run.state == Run.STATE_CANCELLED
    check_cut(api, run.usage)
    assert step.usage == run.usage


@every_api
async def test_a_call_that_breaks_is_on_the_bill(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(say(tokens=50, usage=FIRST, fault=Fault(FaultKind.CUT, after=20)))
    async with agent_on(api, fake, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("hello"))
        [step] = await agent.world.steps(run.id)
    assert run.state == Run.STATE_FAILED
    check_cut(api, run.usage)
    assert step.usage == run.usage


@every_api
async def test_what_was_told_is_not_estimated_though_the_end_is_missing(
    api: Api, fake: FakeLlm, tmp_path: Path
) -> None:
    fake.will(say("hello", usage=FIRST, fault=Fault(FaultKind.CUT, after=-1)))
    async with agent_on(api, fake, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("hello"))
    if api is Api.RESPONSES:
        # Its last event has both the end and the bill.
        assert run.usage.estimated
    else:
        assert run.usage == usage(FIRST)


@every_api
async def test_answers_of_nothing_are_on_the_bill(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(Answer(usage=FIRST), Answer((Say("ok"),), usage=SECOND), *[Answer(usage=SECOND)] * 4)
    async with agent_on(api, fake, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("hello"), timeout=15)
        assert run.state == Run.STATE_COMPLETED
        assert run.usage == usage(scripts.Usage(250, 30, 160, 37, 5))
        run = await agent.world.wait_for(await agent.start("hello"), timeout=15)
        assert run.error.type == "llm_empty_response"
        assert run.usage == usage(scripts.Usage(600, 40, 400, 28, 0))


@every_api
@pytest.mark.parametrize("script", [Failure(401), Failure(400, kind="overflow")], ids=["refused", "too long"])
async def test_what_is_refused_costs_nothing(api: Api, script: Script, fake: FakeLlm, tmp_path: Path) -> None:
    # As often as it may be tried: what happens to a conversation that is too long is another story.
    fake.will(*[script] * 8)
    async with agent_on(api, fake, tmp_path) as agent:
        run = await agent.world.wait_for(await agent.start("hello"))
    assert run.state == Run.STATE_FAILED
    assert run.usage == Usage()
