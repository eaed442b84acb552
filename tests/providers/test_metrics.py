"""What an operator sees of providers."""

from pathlib import Path

from services.fakellm import scripts
from services.fakellm.scripts import Answer, Api, Failure, Say, say
from tests.helpers.fakellm import FakeLlm
from tests.providers.serving import HANDLES, agent_on, cancelled_while_streaming, every_api


@every_api
async def test_calls_retries_waits_and_tokens_are_counted(api: Api, fake: FakeLlm, tmp_path: Path) -> None:
    fake.will(
        Failure(529),
        Answer((Say("hello"),), usage=scripts.Usage(100, 20, 60, 30, 5)),
        Failure(401),
        say(tokens=10_000, token_delay=0.02),
    )
    provider = HANDLES[api].partition("/")[0]
    async with agent_on(api, fake, tmp_path) as agent:
        for _ in range(2):
            await agent.world.wait_for(await agent.start("hello"))
        await cancelled_while_streaming(agent)
        registry = agent.world.node.registry

        def value(name: str, **labels: str) -> float:
            return registry.get_sample_value(name, {"provider": provider, **labels}) or 0.0

        assert value("bridle_model_calls_total", outcome="ok") == 1
        assert value("bridle_model_calls_total", outcome="llm_authentication") == 1
        assert value("bridle_model_calls_total", outcome="cancelled") == 1
        assert value("bridle_model_retries_total") == 1
        assert value("bridle_model_first_token_seconds_count") == 2
        assert value("bridle_model_call_seconds_count") == 3
        kinds = ("input", "output", "cached_input", "cache_write", "reasoning")
        assert [value("bridle_model_tokens_total", kind=kind) for kind in kinds] == [100, 20, 60, 30, 5]
