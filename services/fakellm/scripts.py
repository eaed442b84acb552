"""What the fake provider can be told to do, for all vendors alike.

A script is an Answer (what the model says, how fast, in what pieces, and what breaks on the way) or a Failure (an HTTP
error in the vendor's own words). All of it can be written in JSON or TOML.
"""

from enum import StrEnum
from typing import Any

from msgspec import Struct


class Api(StrEnum):
    """The APIs that are spoken."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


class Say(Struct, frozen=True, tag="say", tag_field="do", forbid_unknown_fields=True):
    """Text: a text that is sent word by word, exactly these pieces, or so many tokens."""

    text: str = ""
    pieces: tuple[str, ...] = ()
    tokens: int = 0


class Think(Struct, frozen=True, tag="think", tag_field="do", forbid_unknown_fields=True):
    """Reasoning.

    The signature is Anthropic's, and the encrypted content of OpenAI's Responses. `redacted` is reasoning of which
    nothing can be read. Chat Completions has only the text, as `reasoning_content`.
    """

    text: str = ""
    signature: str = ""
    redacted: str = ""


class Call(Struct, frozen=True, tag="call", tag_field="do", forbid_unknown_fields=True):
    """A tool call. Arguments that are a string are sent as they are, valid or not; without an id one is made up."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""
    # In what pieces the arguments come; else in two halves.
    pieces: tuple[str, ...] = ()


class Refuse(Struct, frozen=True, tag="refuse", tag_field="do", forbid_unknown_fields=True):
    """A refusal in words. Anthropic has no such part: there it is text, and the stop reason tells."""

    text: str


Part = Say | Think | Call | Refuse


class Finish(StrEnum):
    """Why the model stops, under one name for all vendors."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"


class Usage(Struct, frozen=True, forbid_unknown_fields=True):
    """Token counts. `input_tokens` is the whole prompt: what was read from a cache or written to one is part of it."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0


class CallStyle(StrEnum):
    """How the pieces of tool calls arrive. The last two exist only in Chat Completions; elsewhere they are in turn."""

    # One call after the other: name and id first, then the arguments.
    IN_TURN = "in_turn"
    # Each call in a single piece.
    WHOLE = "whole"
    # All calls are opened; then a piece of each, and so on.
    INTERLEAVED = "interleaved"
    # All calls are opened; then the arguments of the last one first.
    REVERSED = "reversed"
    # The first piece of the arguments comes before id and name.
    LATE_ID = "late_id"
    # The name comes in two pieces.
    SPLIT_NAME = "split_name"


class Wire(Struct, frozen=True, forbid_unknown_fields=True):
    """How the bytes of a stream are cut. By default each event is an HTTP chunk."""

    # HTTP chunks of these sizes in turn, whatever the events are.
    sizes: tuple[int, ...] = ()
    # So many events to an HTTP chunk.
    events_per_chunk: int = 1
    # Lines end as on Windows, which the SSE standard allows.
    crlf: bool = False
    # Something that means nothing after so many tokens: Anthropic's ping, a comment in the others.
    ping_every: int = 0


class FaultKind(StrEnum):
    """What breaks."""

    # Nothing more comes, and the connection stays open for ever.
    STALL = "stall"
    # The TCP connection is reset.
    RESET = "reset"
    # The TCP connection is closed in the middle of the body.
    CUT = "cut"
    # The body ends as HTTP wants it, but without what the vendor ends a stream with.
    END = "end"
    # The vendor's error event.
    ERROR = "error"
    # The same; in OpenAI's Responses a `response.failed`.
    FAILED = "failed"


class Failure(Struct, frozen=True, tag="failure", forbid_unknown_fields=True):
    """An HTTP error. Type, code and words are the vendor's for this status unless they are given."""

    status: int = 500
    # `overflow` (the context window) or `quota` (no money) instead of what the status alone would say.
    kind: str = ""
    message: str = ""
    # Seconds, sent as the Retry-After header.
    retry_after: float | None = None
    # Sent instead of the vendor's body, for proxies that answer with HTML.
    body: str | None = None
    delay: float = 0.0


class Fault(Struct, frozen=True, forbid_unknown_fields=True):
    """Something breaks after so many tokens: 0 is before the first one, -1 is right before the end mark."""

    kind: FaultKind
    after: int = 0
    # Half of the next event is still sent.
    partial: bool = False
    # If not, it happens before the status line, and `after` does not matter.
    headers: bool = True
    # What the error event says.
    failure: Failure = Failure()


class Answer(Struct, frozen=True, tag="answer", forbid_unknown_fields=True):
    """A turn of the model. Without parts it is an empty answer."""

    parts: tuple[Part, ...] = ()
    finish: Finish | None = None
    # None: counted from the text.
    usage: Usage | None = None
    # The vendor says nothing about usage.
    no_usage: bool = False
    # Seconds before the first token, and between two.
    first_delay: float = 0.0
    token_delay: float = 0.0
    calls: CallStyle = CallStyle.IN_TURN
    wire: Wire = Wire()
    fault: Fault | None = None


Script = Answer | Failure


def say(text: str = "", **options: Any) -> Answer:
    """An answer that is a text, or `tokens=` so many tokens."""
    return Answer(parts=(Say(text=text, tokens=options.pop("tokens", 0)),), **options)


def call(name: str, arguments: dict[str, Any] | str | None = None, call_id: str = "", **options: Any) -> Answer:
    """An answer that is one tool call."""
    return Answer(parts=(Call(name, {} if arguments is None else arguments, call_id),), **options)
