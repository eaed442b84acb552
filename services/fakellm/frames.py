"""A stream as frames: bytes of whole events, each with its place in the turn, which delays and faults refer to."""

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import msgspec
from msgspec import Struct

from services.fakellm.asked import Asked
from services.fakellm.scripts import Answer, Fault

encode = msgspec.json.Encoder().encode


class Place(IntEnum):
    """What a frame is to the turn."""

    # Announces or closes something.
    META = 0
    # A piece of what the model writes.
    TOKEN = 1
    # After the last piece: reason, usage.
    TAIL = 2
    # The mark by which a client knows that it has everything.
    LAST = 3


class Frame(NamedTuple):
    """The bytes of one event."""

    place: Place
    data: bytes


class Job(Struct, frozen=True):
    """One answer to one request; `unique` makes ids that no other answer has."""

    answer: Answer
    asked: Asked
    unique: str
    created: int


class Writer(Protocol):
    """A job in the words of a vendor."""

    @property
    def ping(self) -> bytes:
        """An event that means nothing."""
        ...

    def frames(self) -> Iterator[Frame]:
        """The stream."""
        ...

    def whole(self) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        ...

    def error(self, fault: Fault) -> bytes:
        """The event that ends a stream with an error."""
        ...


def data_event(value: Any) -> bytes:
    """An event that has only data."""
    return b"data: %b\n\n" % encode(value)


def named_event(value: dict[str, Any]) -> bytes:
    """An event whose name is the type in its data."""
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), encode(value))
