"""The built-in model: deterministic, needs no key, and does what it is told. For a first run, and for tests.

What the last user message says decides:

    call roll_dice {"sides": 6}     calls a tool; ` and ` joins calls of one turn, ` then ` separates turns
    count to 100                    streams that many tokens
    fail llm_rate_limit             fails the way a provider would
    anything else                   is echoed, word by word

`demo/echo` answers at once, `demo/slow` takes 50 ms for each token, `demo/silent` never answers.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterable

from services.messages.model import Part, Role, Text, ToolReturn
from services.models.api import (
    CallArguments,
    CallStarted,
    ContextMessage,
    Finish,
    Finished,
    ModelEvent,
    ModelRequest,
    TextChunk,
)
from services.models.errors import ModelError, ModelErrorType
from services.models.usage import estimate_tokens
from services.runs.model import Usage

MODELS = ("echo", "slow", "silent")

_SLOW_SECONDS = 0.05
_CALL = re.compile(r"call\s+(?P<name>[A-Za-z0-9_-]+)\s*(?P<arguments>\{.*\})?\s*\Z", re.DOTALL)
_COUNT = re.compile(r"count to (\d{1,6})\b")
_FAIL = re.compile(r"fail (llm_[a-z_]+|context_window_exceeded)\b")
_NUDGE = re.compile(r"ToolRuleViolated: You must call ([A-Za-z0-9_-]+)")


class DemoProvider:
    """A provider that reads its script from the conversation."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn."""
        if request.model == "silent":
            await asyncio.Event().wait()
        pause = _SLOW_SECONDS if request.model == "slow" else 0.0
        said, done = _situation(request.messages)
        _fail_if_told(said)
        written = 0
        for event in _turn(request, said, done):
            await asyncio.sleep(pause)
            written += _weight(event)
            yield event
        finish = Finish.TOOL_CALLS if _calls(request, said, done) else Finish.STOP
        yield Finished(finish, Usage(input_tokens=_weight_of(request), output_tokens=written))


def _situation(messages: tuple[ContextMessage, ...]) -> tuple[str, list[ToolReturn]]:
    """What was said last, and what tools have returned since then, turn by turn."""
    said, returns = "", list[ToolReturn]()
    for message in messages:
        if message.role is Role.USER:
            said, returns = _text(message.parts), []
        elif message.role is Role.TOOL:
            returns = [part for part in message.parts if isinstance(part, ToolReturn)]
    return said, returns


def _turns_taken(messages: tuple[ContextMessage, ...]) -> int:
    taken = 0
    for message in messages:
        if message.role is Role.USER:
            taken = 0
        elif message.role is Role.TOOL:
            taken += 1
    return taken


def _turn(request: ModelRequest, said: str, returns: list[ToolReturn]) -> Iterable[ModelEvent]:
    calls = _calls(request, said, returns)
    if calls:
        return _call_events(calls)
    if returns:
        return _words("; ".join(f"{result.name} returned {result.text}" for result in returns))
    counted = _COUNT.match(said.strip())
    if counted:
        return (TextChunk(f"{number} ") for number in range(1, int(counted.group(1)) + 1))
    return _words(f"You said: {said}")


def _calls(request: ModelRequest, said: str, returns: list[ToolReturn]) -> list[tuple[str, str]]:
    """The calls of this turn: what was asked for, or what the rules force."""
    turns = re.split(r"\s+then\s+", said.strip())
    taken = _turns_taken(request.messages)
    clauses = re.split(r"\s+and\s+(?=call\b)", turns[taken]) if taken < len(turns) else []
    told = [_CALL.match(clause) for clause in clauses]
    found = [match for match in told if match is not None]
    if found and len(found) == len(told):
        return [(match["name"], match["arguments"] or "{}") for match in found]
    nudged = _NUDGE.match(said)
    if nudged and not returns:
        return [(nudged.group(1), "{}")]
    if request.forced and request.tools:
        return [(request.tools[0].name, "{}")]
    return []


def _call_events(calls: list[tuple[str, str]]) -> list[ModelEvent]:
    events: list[ModelEvent] = []
    for index, (name, arguments) in enumerate(calls):
        # The engine makes the ids of calls that come without one.
        events.append(CallStarted(index, "", name))
        half = len(arguments) // 2
        events += [CallArguments(index, arguments[:half]), CallArguments(index, arguments[half:])]
    return events


def _words(text: str) -> list[ModelEvent]:
    return [TextChunk(word) for word in re.findall(r"\S+\s*", text)]


def _fail_if_told(said: str) -> None:
    match = _FAIL.match(said.strip())
    if match is None:
        return
    try:
        kind = ModelErrorType(match.group(1))
    except ValueError:
        kind = ModelErrorType.ERROR
    raise ModelError(kind, "The demo model was told to fail.", detail=said)


def _text(parts: tuple[Part, ...]) -> str:
    return "\n".join(part.text for part in parts if isinstance(part, Text))


def _weight(event: ModelEvent) -> int:
    return estimate_tokens(event.text) if isinstance(event, TextChunk | CallArguments) else 0


def _weight_of(request: ModelRequest) -> int:
    return estimate_tokens(request.system) + sum(estimate_tokens(_text(m.parts)) for m in request.messages)
