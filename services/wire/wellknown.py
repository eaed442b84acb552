"""Protobuf's well-known types and enums as plain Python values, and back."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, Protocol

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import Struct, Value

# Beyond this a double no longer tells neighbouring integers apart: it was not meant as one.
_EXACT = 2**53
_NANOS = 1_000_000_000


class Enum(Protocol):
    """What generated enums have in common."""

    def Name(self, number: Any) -> str:
        """The name of a number."""
        ...

    def Value(self, name: str) -> Any:
        """The number of a name."""
        ...

    def values(self) -> Iterable[Any]:
        """All numbers."""
        ...


def present(message: Message) -> set[str]:
    """The names of the fields that are set."""
    return {field.name for field, _ in message.ListFields()}


def to_dict(struct: Struct) -> dict[str, Any]:
    """JSON's view of a Struct; whole numbers come back as ints, as the caller wrote them."""
    return {key: _plain(value) for key, value in struct.fields.items()}


def to_struct(values: dict[str, Any]) -> Struct:
    """The Struct of a JSON object."""
    struct = Struct()
    struct.update(values)
    return struct


def numbers(value: Any) -> Iterator[float]:
    """Every number in a JSON value, at any depth."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from numbers(each)
    elif isinstance(value, int | float):
        yield value


def to_seconds(duration: Duration) -> float:
    """A duration in seconds: one division, so that what was sent as 1.577457 s is that again."""
    return (duration.seconds * _NANOS + duration.nanos) / _NANOS


def to_duration(seconds: float) -> Duration:
    """Seconds as a duration, to the nanosecond."""
    duration = Duration()
    duration.FromNanoseconds(round(seconds * _NANOS))
    return duration


def enum_text(enum: Enum, prefix: str, number: Any) -> str:
    """A value's name as the domain spells it: `STOP_REASON_END_TURN` is `end_turn`."""
    return enum.Name(number).removeprefix(prefix).lower()


def enum_number(enum: Enum, prefix: str, text: str) -> Any:
    """The number of a value that the domain spells `text`."""
    return enum.Value(prefix + text.upper())


def is_known(enum: Enum, number: int) -> bool:
    """Whether this server knows the number: open enums carry any."""
    return number in enum.values()


def _plain(value: Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return to_dict(value.struct_value)
    if kind == "list_value":
        return [_plain(each) for each in value.list_value.values]
    if kind == "number_value":
        return _number(value.number_value)
    if kind is None or kind == "null_value":
        return None
    return getattr(value, kind)


def _number(value: float) -> int | float:
    # NaN and the infinities fail the first test.
    whole = math.isfinite(value) and value.is_integer() and abs(value) <= _EXACT
    return int(value) if whole else value
