"""Counting tokens when the provider did not."""

from collections.abc import Iterable

from services.messages.model import Part, Reasoning, Text, ToolCall, ToolReturn
from services.models.api import ModelRequest
from services.runs.model import Usage

# Good to within a third for English and code. It only has to be honest about being an estimate.
_CHARS_PER_TOKEN = 4


def estimate(request: ModelRequest | None, written: Iterable[Part]) -> Usage:
    """What a call has probably cost."""
    if request is None:
        return Usage()
    sent = estimate_tokens(request.system) + sum(_weight(message.parts) for message in request.messages)
    return Usage(input_tokens=sent, output_tokens=_weight(written), estimated=True)


def estimate_tokens(text: str) -> int:
    """What a text probably weighs."""
    return -(-len(text) // _CHARS_PER_TOKEN)


def _weight(parts: Iterable[Part]) -> int:
    total = 0
    for part in parts:
        match part:
            case Text(text=text) | Reasoning(text=text) | ToolReturn(text=text):
                total += estimate_tokens(text)
            case ToolCall(name=name, arguments=arguments):
                total += estimate_tokens(name + arguments)
    return total
