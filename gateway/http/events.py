"""Server-sent events: bare `data:` frames. The SDKs drop a frame with any name but `error`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_encode: Final = msgspec.json.Encoder().encode

DONE: Final = b"data: [DONE]\n\n"
# Keeps proxies from closing a quiet stream; every client skips it.
KEEP_ALIVE: Final = b": keep-alive\n\n"

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    # Some proxies collect an answer before they pass it on, unless they are told not to.
    (b"x-accel-buffering", b"no"),
)


def frame(value: Any) -> bytes:
    """One chunk. JSON has no raw line breaks, so that it is one line."""
    return b"data: " + _encode(value) + b"\n\n"


def error_frame(value: Any) -> bytes:
    """The chunk at which the SDKs raise."""
    return b"event: error\ndata: " + _encode(value) + b"\n\n"


class EventStream:
    """An answer of frames. The generator is closed in the task that reads it, also when the client hangs up."""

    __slots__ = ("frames",)

    def __init__(self, frames: AsyncGenerator[bytes, None]) -> None:
        self.frames = frames
