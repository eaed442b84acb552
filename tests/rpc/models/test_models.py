"""ListModels: what providers say, what we know when they are silent, in pages, whatever is down."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc

from services.fakellm.models import MODELS
from tests.helpers.fakellm import FakeLlm, fake_llm
from tests.helpers.server import free_address
from tests.rpc.agents.rig import OTHER
from tests.rpc.models.rig import Provider, Rig, refused

CHAT, ANTHROPIC = Provider.API_OPENAI_CHAT, Provider.API_ANTHROPIC
DEMO = ["demo/echo", "demo/silent", "demo/slow"]
OWN = sorted(f"openai/{name}" for name in MODELS)


@asynccontextmanager
async def silent_server() -> AsyncIterator[str]:
    """Takes connections and says nothing."""
    gone = asyncio.Event()

    async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await gone.wait()
        writer.close()

    server = await asyncio.start_server(wait, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        gone.set()
        server.close()


async def test_every_provider_is_asked(rig: Rig, fake: FakeLlm) -> None:
    await rig.put(name="claude", api=ANTHROPIC, base_url=fake.anthropic_base_url)
    # `anthropic` has no key here, so that nobody can use it.
    assert await rig.handles() == sorted([*(f"claude/{name}" for name in MODELS), *DEMO, *OWN])
    models = {model.handle: model for model in (await rig.listed()).models}
    gpt, claude, echo = models["openai/gpt-5"], models["claude/claude-haiku-5-5"], models["demo/echo"]
    assert (gpt.provider, gpt.name, gpt.context_window) == ("openai", "gpt-5", 400_000)
    assert (gpt.supports_tools, gpt.supports_images, gpt.supports_reasoning) == (True, True, True)
    assert models["openai/gpt-4o-mini"].supports_images
    assert not models["openai/gpt-4o-mini"].supports_reasoning
    assert claude.context_window == 300_000, "as the provider says"
    assert (claude.supports_images, claude.supports_reasoning) == (True, False), "as the provider says"
    assert (echo.supports_tools, echo.supports_images) == (True, False)


async def test_one_provider_of_all(rig: Rig) -> None:
    assert await rig.handles(provider="demo") == DEMO
    assert await rig.handles(provider="nobody") == []
    assert await rig.handles(OTHER, provider="openai") == OWN
    code, _ = await refused(rig.listed(provider="x" * 33))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_pages(rig: Rig) -> None:
    found: list[str] = []
    token = ""
    while True:
        page = await rig.listed(page_size=2, page_token=token)
        assert len(page.models) <= 2
        found += [model.handle for model in page.models]
        token = page.next_page_token
        if not token:
            break
    assert found == [*DEMO, *OWN]
    first = await rig.listed(page_size=2)
    code, _ = await refused(rig.listed(provider="demo", page_token=first.next_page_token))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    code, _ = await refused(rig.listed(page_size=-1))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_one_that_is_down_costs_only_its_own(rig: Rig) -> None:
    async with silent_server() as url:
        await rig.put(name="dead", api=CHAT, base_url=f"http://{free_address()}/v1")
        await rig.put(name="silent", api=CHAT, base_url=url)
        await rig.put(name="silent-claude", api=ANTHROPIC, base_url=url)
        assert await rig.handles() == [*DEMO, *OWN]


async def test_what_was_heard_is_remembered_for_a_while(rig: Rig) -> None:
    async with fake_llm() as other:
        await rig.put(name="other", api=CHAT, base_url=other.openai_base_url)
        assert len(await rig.handles(provider="other")) == len(MODELS)
    # It is gone now.
    assert len(await rig.handles(provider="other")) == len(MODELS)
    rig.clock.advance(299)
    assert len(await rig.handles(provider="other")) == len(MODELS)
    rig.clock.advance(2)
    assert await rig.handles(provider="other") == []


async def test_a_changed_provider_is_asked_at_once(rig: Rig, fake: FakeLlm) -> None:
    await rig.put(name="other", api=CHAT, base_url=f"http://{free_address()}/v1")
    assert await rig.handles(provider="other") == []
    await rig.put(name="other", api=CHAT, base_url=fake.openai_base_url)
    assert len(await rig.handles(provider="other")) == len(MODELS)


async def test_many_models_come_in_the_provider_s_own_pages(rig: Rig) -> None:
    names = [f"claude-{number:04}" for number in range(2_500)]
    async with fake_llm(models=names) as many:
        await rig.put(name="many", api=ANTHROPIC, base_url=many.anthropic_base_url)
        page = await rig.listed(provider="many", page_size=5_000)
        assert len(page.models) == 1_000
        assert page.next_page_token
        found = [model.name for model in page.models]
        while page.next_page_token:
            page = await rig.listed(provider="many", page_size=5_000, page_token=page.next_page_token)
            found += [model.name for model in page.models]
        assert found == names
