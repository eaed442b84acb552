"""How much may be shown, and what it weighs."""

import pytest

from services.agents.model import CompactionSettings, ModelSettings
from services.context.weights import Scale, Weighed, Weights
from services.context.window import Window, require_fit, surely_fits, window_of, window_size
from services.messages.model import Body, InContext, Role, Text
from services.models import tokens
from services.models.api import ContextMessage, ModelRequest, ToolSpec
from services.models.errors import ModelError, ModelErrorType

SETTINGS = CompactionSettings()
HELLO = InContext("message-1", 1, Role.USER, Body((Text("hello world"),)))


@pytest.mark.parametrize(
    ("handle", "settings", "size"),
    [
        ("openai/gpt-4o", ModelSettings(), 128_000),
        ("anthropic/claude-x", ModelSettings(), 200_000),
        ("openai/gpt-4o", ModelSettings(context_window=5_000), 5_000),
        ("ollama/llama", ModelSettings(), None),
        ("demo/echo", ModelSettings(), 128_000),
    ],
)
def test_the_agent_knows_its_window_better_than_we_do(handle: str, settings: ModelSettings, size: int | None) -> None:
    assert window_size(handle, settings) == size


@pytest.mark.parametrize(
    ("settings", "compaction", "limit"),
    [
        (ModelSettings(context_window=100_000), SETTINGS, int((100_000 - 4_096) * 0.9)),
        (ModelSettings(context_window=1_000), SETTINGS, 675),
        (ModelSettings(context_window=10_000, max_output_tokens=2_000), SETTINGS, 7_200),
        (ModelSettings(context_window=10_000, max_output_tokens=9_999), SETTINGS, 2_250),
        (ModelSettings(context_window=10_000), CompactionSettings(threshold=0.5, keep=0.2), 3_750),
        # Nothing is done before it is too late, so nothing is spared for it.
        (ModelSettings(context_window=1_000), CompactionSettings(mode="off"), 750),
        (ModelSettings(), SETTINGS, None),
    ],
)
def test_the_answer_has_its_share(settings: ModelSettings, compaction: CompactionSettings, limit: int | None) -> None:
    assert window_of("ollama/llama", settings, compaction).limit == limit


def test_what_is_small_is_not_counted() -> None:
    request = ModelRequest("m", "be brief", (ContextMessage(Role.USER, (Text("hello world"),)),))
    assert surely_fits(request, Window())
    assert surely_fits(request, Window(100, 23))
    assert not surely_fits(request, Window(100, 22))
    assert tokens.most("h\u00e9llo") == 6


def test_a_text_never_has_more_tokens_than_bytes() -> None:
    for text in (
        "hello world",
        "\u4f60\u597d\uff0c\u4e16\u754c",
        "\U0001f600\U0001f680" * 9,
        "\x00\x01\x02",
        "a" * 999,
    ):
        assert tokens.count(text) <= tokens.most(text)


def test_what_does_not_fit_is_said_in_numbers() -> None:
    require_fit(Scale(50, (Weighed(HELLO, 50),)), 100)
    with pytest.raises(ModelError) as caught:
        require_fit(Scale(50, (Weighed(HELLO, 51),)), 100)
    assert caught.value.kind is ModelErrorType.CONTEXT_WINDOW_EXCEEDED
    assert "101 tokens" in caught.value.detail
    with pytest.raises(ModelError) as caught:
        require_fit(Scale(100, ()), 100)
    assert caught.value.kind is ModelErrorType.SYSTEM_PROMPT_OVERFLOW


async def test_a_message_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def count(parts: tuple[Text, ...]) -> int:
        counted.append(len(parts))
        return 7

    monkeypatch.setattr(tokens, "of_parts", count)
    weights, request = Weights(), ModelRequest("m", "be brief", (), (ToolSpec("look", "Looks.", {}),))
    decision = InContext("message-2", 2, Role.APPROVAL, Body((Text("yes"),)))

    scales = [await weights.weigh(request, [HELLO, decision]) for _ in range(3)]

    assert len(counted) == 1
    assert scales[0] == scales[2]
    assert [each.tokens for each in scales[0].messages] == [7 + tokens.PER_MESSAGE, 0]
    assert scales[0].fixed == tokens.count("be brief") + tokens.of_tool(request.tools[0])


def test_what_was_not_asked_for_longest_is_forgotten() -> None:
    weights = Weights(most=2)
    entries = [InContext(f"message-{n}", n, Role.USER, Body((Text("hi " * n),))) for n in range(1, 4)]
    for number in (0, 1, 0, 2):
        weights.message(entries[number])
    assert list(weights._known) == ["message-1", "message-3"]  # noqa: SLF001 - what it remembers is the point
