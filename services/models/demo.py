"""The built-in model: deterministic, needs no key, and does what it is told. For a first run, and for tests.

The last user message decides, in the language of script.py. `demo/echo` answers at once, `demo/slow` takes 50 ms for
each token, `demo/silent` never answers.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable

import msgspec

from services.messages.model import Part, Role, Text, ToolReturn
from services.models import script
from services.models.api import (
    CallArguments,
    CallStarted,
    Finish,
    Finished,
    ModelEvent,
    ModelRequest,
    ReasoningChunk,
    TextChunk,
)
from services.models.errors import ModelError, ModelErrorType
from services.runs.model import Usage

PREFIX = "demo"
MODELS = ("echo", "slow", "silent")
# It has no window of its own; this is what its agents plan with.
CONTEXT_WINDOW = 128_000

_SLOW_SECONDS = 0.05
# It has no tokens of its own; any constant will do.
_CHARS_PER_TOKEN = 4


class DemoProvider:
    """A provider that reads its script from the conversation."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn."""
        if request.model == "silent":
            await asyncio.Event().wait()
        pause = _SLOW_SECONDS if request.model == "slow" else 0.0
        deeds = script.deeds(_situation(request))
        pause = max([pause, *(deed.pause for deed in deeds if isinstance(deed, script.Count))])
        written = 0
        for event in _events(deeds):
            await asyncio.sleep(pause)
            written += _weight(event)
            yield event
        finish = Finish.TOOL_CALLS if any(isinstance(deed, script.Call) for deed in deeds) else Finish.STOP
        yield Finished(finish, Usage(input_tokens=_weight_of(request), output_tokens=written))

    def preview(self, request: ModelRequest) -> bytes:
        """The request itself: it goes nowhere, so it has no other form."""
        return msgspec.json.encode(msgspec.structs.replace(request, watch=None))


def _situation(request: ModelRequest) -> script.Situation:
    said, turns, returns = "", 0, tuple[tuple[str, str], ...]()
    for message in request.messages:
        if message.role is Role.USER:
            said, turns, returns = _text(message.parts), 0, ()
        elif message.role is Role.TOOL:
            turns += 1
            returns = tuple((part.name, part.text) for part in message.parts if isinstance(part, ToolReturn))
    forced = request.tools[0].name if request.forced and request.tools else ""
    return script.Situation(said, turns, returns, forced)


def _events(deeds: Iterable[script.Deed]) -> Iterable[ModelEvent]:
    calls = 0
    for deed in deeds:
        match deed:
            case script.Call(name=name, arguments=arguments):
                # The engine makes the ids of calls that come without one.
                yield CallStarted(calls, "", name)
                half = len(arguments) // 2
                yield CallArguments(calls, arguments[:half])
                yield CallArguments(calls, arguments[half:])
                calls += 1
            case script.Say(text=text):
                yield from map(TextChunk, script.split(text))
            case script.Think(text=text):
                yield from map(ReasoningChunk, script.split(text))
            case script.Count(last=last):
                yield from map(TextChunk, script.numbers(last))
            case script.Fail(kind=kind):
                raise _failure(kind)


def _failure(kind: str) -> ModelError:
    known = ModelErrorType(kind) if kind in set(ModelErrorType) else ModelErrorType.ERROR
    return ModelError(known, "The demo model was told to fail.", detail=f"fail {kind}")


def _text(parts: tuple[Part, ...]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _weight(event: ModelEvent) -> int:
    return _tokens(event.text) if isinstance(event, TextChunk | ReasoningChunk | CallArguments) else 0


def _weight_of(request: ModelRequest) -> int:
    return _tokens(request.system) + sum(_tokens(_text(m.parts)) for m in request.messages)


def _tokens(text: str) -> int:
    return -(-len(text) // _CHARS_PER_TOKEN)
