"""What is known of models by their names. Names change faster than releases: the unknown gets the newest behaviour."""

import re

from msgspec import Struct

# The first match counts. Windows as the vendors state them.
_WINDOWS = (
    (re.compile(r"claude-"), 200_000),
    (re.compile(r"gpt-(3\.5|35)"), 16_385),
    (re.compile(r"gpt-4(-0613|-0314)?\Z"), 8_192),
    (re.compile(r"gpt-4\.1"), 1_047_576),
    (re.compile(r"gpt-(4|5(\.\d)?-chat)"), 128_000),
    (re.compile(r"gpt-[5-9]"), 400_000),
    (re.compile(r"o1-(mini|preview)"), 128_000),
    (re.compile(r"o[1-9]"), 200_000),
)
# OpenAI models that do not reason; they refuse to be asked for it.
_PLAIN = re.compile(r"gpt-(3|4|5(\.\d)?-chat)|chatgpt-|ft:gpt-(3|4)|babbage|davinci")
# Claude models that take a number of tokens to think with. Later ones decide themselves and refuse the number.
_BUDGETED = re.compile(r"claude-(2|3|instant)|claude-(opus|sonnet|haiku)-4(-[015]|-20\d{6})?(-20\d{6}|-latest)?\Z")
_SHORT = re.compile(r"claude-(2|instant|3-(opus|sonnet|haiku))")
_MEDIUM = re.compile(r"claude-3-5")
# Models that show how they think.
_THINKS = re.compile(r"o[1-9]|gpt-[5-9]|claude-(?!2|instant|3-(opus|sonnet|haiku|5))")
# Models that take images.
_SEES = re.compile(
    r"gpt-4(o|\.1|-turbo|\.5)|gpt-[5-9]|o[1-9](?!-(mini|preview))|o4-mini|chatgpt-4o|claude-(?!2|instant)"
)
# What OpenAI lists beside the models that one can talk to.
_MUTE = re.compile(
    r"embedding|whisper|tts|dall-e|image|moderation|realtime|audio|transcribe|sora|babbage|davinci|-instruct|computer-use"
)


class ModelInfo(Struct, frozen=True):
    """A model as a list shows it. A window of 0 is not known."""

    name: str
    context_window: int = 0
    tools: bool = True
    images: bool = False
    reasoning: bool = False


def describe(name: str, window: int | None = None) -> ModelInfo:
    """What is known of a model; proxies put its maker in front of the name."""
    plain = name.rpartition("/")[2]
    return ModelInfo(
        name,
        window or context_window(plain) or 0,
        images=_SEES.match(plain) is not None,
        reasoning=_THINKS.match(plain) is not None and openai_reasons(plain),
    )


def talks(name: str) -> bool:
    """Whether one of OpenAI's models is for conversations."""
    return _MUTE.search(name) is None


def context_window(name: str) -> int | None:
    """Tokens that fit into one call, if it is known."""
    return next((window for pattern, window in _WINDOWS if pattern.match(name)), None)


def openai_reasons(name: str) -> bool:
    """Whether a model at OpenAI reasons before it answers."""
    return _PLAIN.match(name) is None


def anthropic_takes_budget(name: str) -> bool:
    """Whether a Claude model is told how many tokens to think with."""
    return _BUDGETED.match(name) is not None


def anthropic_max_output(name: str) -> int:
    """Anthropic wants a limit in every call; this is one that the model accepts."""
    if _SHORT.match(name):
        return 4_096
    return 8_192 if _MEDIUM.match(name) else 16_384


# Shown when the vendor does not answer; any other name works as well.
OPENAI = tuple(
    describe(f"gpt-{name}") for name in ("4.1", "4.1-mini", "4o", "4o-mini", "5", "5-mini", "5-nano", "5.1")
) + tuple(map(describe, ("o3", "o4-mini")))
ANTHROPIC = tuple(
    describe(f"claude-{name}") for name in ("haiku-4-5", "opus-4-1", "opus-4-5", "sonnet-4-0", "sonnet-4-5")
)
