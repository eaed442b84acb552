"""Counting tokens without asking anybody: exact for OpenAI's models, close for others."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from services.messages.model import Image, Part, Reasoning, Text, ToolCall, ToolReturn
from services.models.api import ContextMessage, ModelRequest, ToolSpec

if TYPE_CHECKING:
    from bpe_openai import Encoding

# What frames a message in every provider's format.
PER_MESSAGE = 4
# A picture's share of the window, by the larger of the providers' formulas for a middling one.
PER_IMAGE = 1_500

# Longer texts are counted by this much of them: a paste of megabytes must not hold up the event loop.
_SAMPLE = 200_000
# Of English prose; of code and of other languages it is less.
_BYTES_PER_TOKEN = 4


@cache
def _encoding() -> "Encoding":
    # Its tables take half a second and a hundred megabytes, which a server that never counts need not spend.
    from bpe_openai import get_encoding  # noqa: PLC0415

    return get_encoding("o200k_base")


def loaded() -> bool:
    """Whether the next count comes at once."""
    return _encoding.cache_info().currsize > 0


def load() -> None:
    """Get ready to count: for a thread, so that nobody waits."""
    _encoding()


def count(text: str) -> int:
    """How many tokens a text is."""
    if len(text) <= _SAMPLE:
        return len(_encoding().encode_ordinary(text))
    return -(-len(_encoding().encode_ordinary(text[:_SAMPLE])) * len(text) // _SAMPLE)


def most(text: str) -> int:
    """How many tokens a text is at most, at hardly any cost: none is shorter than a byte."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def rough(text: str) -> int:
    """How many tokens a text is, more or less, at hardly any cost."""
    return -(-most(text) // _BYTES_PER_TOKEN)


Measure = Callable[[str], int]


def of_request(request: ModelRequest, measure: Measure = count) -> int:
    """How many tokens a provider is sent: instructions, messages and tools."""
    fixed = measure(request.system) + sum(of_tool(tool, measure) for tool in request.tools)
    return fixed + sum(of_message(message, measure) for message in request.messages)


def of_message(message: ContextMessage, measure: Measure = count) -> int:
    """One message, with what frames it."""
    return PER_MESSAGE + of_parts(message.parts, measure)


def of_tool(tool: ToolSpec, measure: Measure = count) -> int:
    """One tool as the model is shown it."""
    return measure(f"{tool.name}\n{tool.description}\n{msgspec.json.encode(tool.parameters).decode()}")


def of_parts(parts: Iterable[Part], measure: Measure = count) -> int:
    """What was said, called and returned."""
    return sum(_of_part(part, measure) for part in parts)


def _of_part(part: Part, measure: Measure) -> int:
    match part:
        case Text(text=text) | Reasoning(text=text, redacted=""):
            return measure(text)
        case Reasoning(redacted=redacted):
            return measure(redacted)
        case ToolCall(name=name, arguments=arguments):
            return measure(name) + measure(arguments)
        case ToolReturn(content=content):
            return of_parts(content, measure)
        case Image():
            return PER_IMAGE
        case _:
            return 0
