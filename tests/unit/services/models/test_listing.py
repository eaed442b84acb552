"""Lists of models: whom to ask, how long to wait, what to remember, what to show meanwhile."""

import asyncio

import pytest

from common.clock import ManualClock
from services.models import catalog
from services.models.catalog import ModelInfo
from services.models.demo import DemoProvider
from services.models.errors import ModelError, ModelErrorType
from services.models.listing import ModelList
from services.models.registry import ProviderModels
from services.models.sources import Source


class Lister:
    """A provider's list, which a test can break."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False
        self.hangs = False

    async def __call__(self) -> list[ModelInfo]:
        self.asked += 1
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise ModelError(ModelErrorType.ERROR, "down")
        return [ModelInfo("b"), ModelInfo("a")]


def listing(lister: Lister, clock: ManualClock, patience: float = 3.0) -> ModelList:
    known = (ModelInfo("known"),)
    return ModelList(
        ProviderModels({"x": Source(DemoProvider(), list_models=lister, known=known)}), clock, patience=patience
    )


async def test_an_answer_counts_for_five_minutes() -> None:
    lister, clock = Lister(), ManualClock()
    models = listing(lister, clock)
    assert list(await models.of("org")) == ["x/a", "x/b"]
    clock.advance(299)
    await models.of("org")
    assert lister.asked == 1
    clock.advance(2)
    await models.of("org")
    assert lister.asked == 2
    assert await models.of("org", "y") == {}
    assert lister.asked == 2


async def test_who_is_down_is_known_by_name_and_asked_again_soon() -> None:
    lister, clock = Lister(), ManualClock()
    models = listing(lister, clock)
    lister.fails = True
    assert list(await models.of("org")) == ["x/known"]
    lister.fails = False
    assert list(await models.of("org")) == ["x/known"], "not asked at every look"
    clock.advance(31)
    assert list(await models.of("org")) == ["x/a", "x/b"]


async def test_who_hangs_is_not_waited_for() -> None:
    lister = Lister()
    lister.hangs = True
    assert list(await listing(lister, ManualClock(), patience=0.01).of("org")) == ["x/known"]


@pytest.mark.parametrize(
    ("name", "window", "images", "reasoning"),
    [
        ("gpt-4", 8_192, False, False),
        ("gpt-4o-mini", 128_000, True, False),
        ("gpt-5-mini", 400_000, True, True),
        ("o3-mini", 200_000, False, True),
        ("o4-mini", 200_000, True, True),
        ("openai/gpt-5", 400_000, True, True),
        ("claude-3-haiku-20240307", 200_000, True, False),
        ("claude-sonnet-4-5", 200_000, True, True),
        ("llama-3:8b", 0, False, False),
    ],
)
def test_what_is_known_by_name(name: str, window: int, images: bool, reasoning: bool) -> None:
    assert catalog.describe(name) == ModelInfo(name, window, True, images, reasoning)


def test_what_a_provider_says_counts_more() -> None:
    assert catalog.describe("gpt-5", 1_000).context_window == 1_000


@pytest.mark.parametrize(
    "name", ["text-embedding-3-small", "whisper-1", "tts-1", "dall-e-3", "gpt-4o-realtime-preview"]
)
def test_what_one_cannot_talk_to_is_left_out(name: str) -> None:
    assert not catalog.talks(name)
    assert all(catalog.talks(model.name) for model in (*catalog.OPENAI, *catalog.ANTHROPIC))
