"""An answer as the sequence in which it is written, before any vendor's words for it.

A part is opened, its pieces come, and it is closed. Parts are numbered from 0.
"""

import itertools
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import NamedTuple

import msgspec

from services.fakellm.scripts import Answer, Call, CallStyle, Finish, Part, Refuse, Say, Think, Usage
from services.models.script import numbers, split

_MIXED = (CallStyle.INTERLEAVED, CallStyle.REVERSED)


class Kind(IntEnum):
    """What happens to a part."""

    OPEN = 0
    PIECE = 1
    CLOSE = 2


class Stroke(NamedTuple):
    """One thing that happens to one part."""

    kind: Kind
    part: int
    text: str = ""


def strokes(answer: Answer) -> Iterator[Stroke]:
    """Everything that happens, in the order in which it is sent."""
    mixed = answer.calls in _MIXED
    numbered = enumerate(answer.parts)
    for together, group in itertools.groupby(numbered, lambda item: mixed and isinstance(item[1], Call)):
        if together:
            yield from _mixed_calls(list(group), answer.calls)
        else:
            for index, part in group:
                yield Stroke(Kind.OPEN, index)
                for piece in pieces(part, answer.calls):
                    yield Stroke(Kind.PIECE, index, piece)
                yield Stroke(Kind.CLOSE, index)


def _mixed_calls(calls: list[tuple[int, Part]], style: CallStyle) -> Iterator[Stroke]:
    for index, _ in calls:
        yield Stroke(Kind.OPEN, index)
    if style is CallStyle.REVERSED:
        for index, call in reversed(calls):
            for piece in pieces(call, style):
                yield Stroke(Kind.PIECE, index, piece)
    else:
        rows = [[Stroke(Kind.PIECE, index, piece) for piece in pieces(call, style)] for index, call in calls]
        for round_ in itertools.zip_longest(*rows):
            yield from (stroke for stroke in round_ if stroke is not None)
    for index, _ in calls:
        yield Stroke(Kind.CLOSE, index)


def pieces(part: Part, style: CallStyle = CallStyle.IN_TURN) -> Iterable[str]:
    """The tokens of a part."""
    match part:
        case Say(pieces=given) if given:
            return given
        case Say(tokens=tokens) if tokens:
            return numbers(tokens)
        case Say(text=text) | Think(text=text) | Refuse(text=text):
            return split(text)
        case Call():
            return _halves(part, style)


def _halves(call: Call, style: CallStyle) -> Iterable[str]:
    whole = arguments(call)
    if style is CallStyle.WHOLE:
        return (whole,)
    middle = len(whole) // 2
    return call.pieces or (whole[:middle], whole[middle:])


def arguments(call: Call) -> str:
    """The arguments as the model wrote them."""
    if call.pieces:
        return "".join(call.pieces)
    return call.arguments if isinstance(call.arguments, str) else msgspec.json.encode(call.arguments).decode()


def text_of(part: Part) -> str:
    """All of a part's text."""
    return "".join(pieces(part))


def finish_of(answer: Answer) -> Finish:
    """Why the model stops: as told, or as its parts imply."""
    if answer.finish is not None:
        return answer.finish
    if any(isinstance(part, Call) for part in answer.parts):
        return Finish.TOOL_CALLS
    return Finish.REFUSAL if any(isinstance(part, Refuse) for part in answer.parts) else Finish.STOP


def usage_of(answer: Answer, input_tokens: int) -> Usage:
    """What the turn costs: as told, or counted by pieces."""
    if answer.usage is not None:
        return answer.usage
    sizes = [(isinstance(part, Think), _size(part)) for part in answer.parts]
    return Usage(
        input_tokens=input_tokens,
        output_tokens=sum(size for _, size in sizes),
        reasoning_tokens=sum(size for thought, size in sizes if thought),
    )


def _size(part: Part) -> int:
    # Counting is not worth writing a long text twice.
    return part.tokens if isinstance(part, Say) and part.tokens and not part.pieces else sum(1 for _ in pieces(part))
