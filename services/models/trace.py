"""A call as a trace shows it: what was sent and what came back, without secrets and pictures, cut to a size."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from services.messages.model import Part
from services.models.api import ModelRequest
from services.models.sse import SseDecoder, SseError
from services.models.watching import CallWatch
from services.runs.model import RunError, Usage

# A shorter one may be a word, and hides nothing.
_LEAST_SECRET = 4
# What a provider that wants no key is given may be a word, too.
_LEAST_KEY = 8
_HIDDEN = "***"
_CREDENTIALS = frozenset({"authorization", "x-api-key", "api_key", "apikey"})
_DATA_URL = re.compile(r"data:(?P<type>[^;,]*);base64,(?P<data>.*)", re.DOTALL)
# How a value that is too large is cut: to texts of so many characters and lists of so many elements.
_CUTS = tuple((max(2**size, 32), 2**size // 8) for size in range(14, 2, -1))
# As long as what is said in place of what is cut: less is not worth it.
_NOTE = 40


class Call(Struct, frozen=True):
    """What is known of a call that has ended, one way or another."""

    watch: CallWatch
    request: ModelRequest | None
    turn: tuple[Part, ...]
    usage: Usage
    outcome: str
    error: RunError | None = None


def shown(call: Call, secrets: Iterable[str], most_bytes: int) -> tuple[str, str]:
    """Request and response as JSON texts, none of them longer than this."""
    hidden = _spellings((*_long(secrets, _LEAST_SECRET), *_long([call.watch.secret], _LEAST_KEY)))
    request, response = redacted(_request(call), hidden), redacted(_response(call, hidden), hidden)
    return fitted(request, most_bytes), fitted(response, most_bytes)


def redacted(value: Any, secrets: tuple[str, ...]) -> Any:
    """A JSON value without secrets, and with the sizes of pictures in their place."""
    match value:
        case str():
            return _text(value, secrets)
        case list() | tuple():
            return [redacted(each, secrets) for each in value]
        case dict():
            return {_text(name, secrets): _field(value, name, secrets) for name in value}
    return value


def fitted(value: Any, most_bytes: int) -> str:
    """A JSON value as text of at most so many bytes. Whatever is left out is said in its place."""
    text = msgspec.json.encode(value)
    size = len(text)
    for most_chars, most_elements in _CUTS:
        if len(text) <= most_bytes:
            break
        text = msgspec.json.encode(_cut(value, most_chars, most_elements))
    if len(text) > most_bytes:
        text = msgspec.json.encode({"cut": f"{size:,} bytes"})
    return text.decode()


def _request(call: Call) -> Any:
    if call.watch.body:
        return msgspec.json.decode(call.watch.body)
    # A model that is part of this program is sent nothing over the wire.
    return None if call.request is None else msgspec.to_builtins(msgspec.structs.replace(call.request, watch=None))


def _response(call: Call, secrets: tuple[str, ...]) -> dict[str, Any]:
    watch = call.watch
    response: dict[str, Any] = {"outcome": call.outcome, "attempts": watch.attempts}
    if call.error is not None:
        response["error"] = msgspec.to_builtins(call.error)
    response |= {"usage": msgspec.to_builtins(call.usage), "turn": msgspec.to_builtins(call.turn)}
    if not watch.received_bytes:
        return response
    events = list(_events(watch.answer))
    if any(secret in text for text in _texts(response["turn"]) for secret in secrets):
        return {**response, "events": "[cut: a secret was spread over them]"}
    if watch.received_bytes > len(watch.answer):
        events.append(f"[cut: {watch.received_bytes - len(watch.answer):,} more bytes]")
    return {**response, "events": events}


def _events(answer: bytes) -> Iterator[Any]:
    """The events of a stream; an answer that is none is one event."""
    try:
        found = SseDecoder().feed(answer)
    except SseError:
        found = []
    yield from map(_decoded, found or [answer])


def _decoded(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError):
        return data.decode(errors="replace")


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list() | tuple():
            for each in value:
                yield from _texts(each)
        case dict():
            yield from _texts(list(value.values()))


def _long(secrets: Iterable[str], least: int) -> list[str]:
    return [secret for secret in secrets if len(secret) >= least]


def _spellings(secrets: Iterable[str]) -> tuple[str, ...]:
    """Each as it is and as it is written inside JSON, the longest first: one may be a part of another."""
    both = {spelling for secret in secrets for spelling in (secret, msgspec.json.encode(secret).decode()[1:-1])}
    return tuple(sorted(both, key=len, reverse=True))


def _text(text: str, secrets: tuple[str, ...]) -> str:
    found = _DATA_URL.fullmatch(text) if text.startswith("data:") else None
    if found is not None:
        return _picture(found["type"], found["data"])
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text


def _field(fields: dict[str, Any], name: str, secrets: tuple[str, ...]) -> Any:
    value = fields[name]
    if isinstance(value, str):
        if name == "data" and fields.get("type") in ("base64", "image"):
            return _picture(str(fields.get("media_type", "")), value)
        if name.casefold() in _CREDENTIALS:
            return _HIDDEN
    return redacted(value, secrets)


def _picture(media_type: str, data: str) -> str:
    size = len(data) * 3 // 4 - data[-2:].count("=")
    return f"[{media_type or 'image'}: {size:,} bytes]"


def _cut(value: Any, most_chars: int, most_elements: int) -> Any:
    match value:
        case str() if len(value) > most_chars + _NOTE:
            return f"{value[:most_chars]} [cut: {len(value) - most_chars:,} more characters]"
        case list() if len(value) > most_elements:
            first, last = most_elements - most_elements // 2, most_elements // 2
            left_out = f"[cut: {len(value) - first - last:,} elements]"
            kept = [*value[:first], left_out, *value[len(value) - last :]]
            return [_cut(each, most_chars, most_elements) for each in kept]
        case list():
            return [_cut(each, most_chars, most_elements) for each in value]
        case dict():
            return {name: _cut(each, most_chars, most_elements) for name, each in value.items()}
    return value
