"""Counting tokens without asking anybody: exact for OpenAI's models, close for others."""

from collections.abc import Iterable
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


@cache
def _encoding() -> "Encoding":
    # Its tables take half a second to load, which a server that never counts need not spend.
    from bpe_openai import get_encoding  # noqa: PLC0415

    return get_encoding("o200k_base")


def count(text: str) -> int:
    """How many tokens a text is."""
    if len(text) <= _SAMPLE:
        return len(_encoding().encode_ordinary(text))
    return -(-len(_encoding().encode_ordinary(text[:_SAMPLE])) * len(text) // _SAMPLE)


def of_request(request: ModelRequest) -> int:
    """How many tokens a provider is sent: instructions, messages and tools."""
    tools = sum(of_tool(tool) for tool in request.tools)
    return count(request.system) + tools + sum(of_message(message) for message in request.messages)


def of_message(message: ContextMessage) -> int:
    """One message, with what frames it."""
    return PER_MESSAGE + of_parts(message.parts)


def of_tool(tool: ToolSpec) -> int:
    """One tool as the model is shown it."""
    return count(f"{tool.name}\n{tool.description}\n{msgspec.json.encode(tool.parameters).decode()}")


def of_parts(parts: Iterable[Part]) -> int:
    """What was said, called and returned."""
    return sum(map(_of_part, parts))


def _of_part(part: Part) -> int:
    match part:
        case Text(text=text) | Reasoning(text=text, redacted=""):
            return count(text)
        case Reasoning(redacted=redacted):
            return count(redacted)
        case ToolCall(name=name, arguments=arguments):
            return count(name) + count(arguments)
        case ToolReturn(content=content):
            return of_parts(content)
        case Image():
            return PER_IMAGE
        case _:
            return 0
