"""Reads the stream of a Responses call."""

import msgspec
from msgspec import Struct

from services.models.api import Finish, Finished, ModelEvent, ReasoningChunk, TextChunk
from services.models.calls import Calls
from services.models.failures import broken, complaint, refusal
from services.models.history import RESPONSES_MARK
from services.runs.model import Usage

_DONE = b"[DONE]"


class _Item(Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    encrypted_content: str | None = None


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Incomplete(Struct):
    reason: str | None = None


class _Response(Struct):
    usage: _Usage | None = None
    incomplete_details: _Incomplete | None = None
    error: msgspec.Raw = msgspec.Raw()


class _Event(Struct):
    type: str = ""
    delta: str | None = None
    output_index: int = 0
    summary_index: int = 0
    item: _Item | None = None
    response: _Response | None = None
    arguments: str | None = None


class _Any(Struct):
    type: str = ""


_decode = msgspec.json.Decoder(_Event).decode
_decode_type = msgspec.json.Decoder(_Any).decode


class ResponsesReader:
    """One turn, from its events."""

    def __init__(self) -> None:
        self._calls = Calls(frozenset())
        self._keys: dict[int, int] = {}
        self._refused = False
        self._response: _Response | None = None
        self.done = False

    @property
    def complete(self) -> bool:
        """Whether the response has ended."""
        return self._response is not None

    @property
    def usage(self) -> Usage | None:
        """What is known of the cost, which is told at the end."""
        return _usage(self._response.usage) if self._response is not None else None

    def read(self, data: bytes) -> list[ModelEvent]:
        """What one event says; what we do not know is passed over."""
        if data == _DONE:
            return []
        try:
            event = _decode(data)
        except msgspec.ValidationError:
            if _decode_type(data).type in _KNOWN:
                raise
            return []
        match event.type:
            case "response.output_text.delta":
                return [TextChunk(event.delta)] if event.delta else []
            case "response.refusal.delta":
                self._refused = True
                return [TextChunk(event.delta)] if event.delta else []
            case "response.completed" | "response.incomplete":
                self._response, self.done = event.response or _Response(), True
                return []
            case "error":
                raise refusal(complaint(data), {})
            case "response.failed":
                raise refusal(complaint(_error_of(event.response) or data), {})
        return self._reasoning(event) if "reasoning" in event.type else self._call(event)

    def end(self) -> list[ModelEvent]:
        """The end of the turn."""
        if self._response is None:
            raise broken("The model's answer broke off.")
        return [*self._calls.end(), Finished(self._finish(self._response), self.usage)]

    def _finish(self, response: _Response) -> Finish:
        if response.incomplete_details is not None:
            return Finish.REFUSAL if response.incomplete_details.reason == "content_filter" else Finish.LENGTH
        if self._refused:
            return Finish.REFUSAL
        return Finish.TOOL_CALLS if self._calls else Finish.STOP

    def _reasoning(self, event: _Event) -> list[ModelEvent]:
        match event.type:
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                return [ReasoningChunk(event.delta)] if event.delta else []
            case "response.reasoning_summary_part.added" if event.summary_index > 0:
                return [ReasoningChunk("\n\n")]
        return []

    def _call(self, event: _Event) -> list[ModelEvent]:
        match event.type:
            case "response.output_item.added" if event.item is not None:
                return self._announce(event.output_index, event.item)
            case "response.function_call_arguments.delta" if event.delta:
                return self._calls.add(self._key(event.output_index), arguments=event.delta)
            case "response.function_call_arguments.done" if event.arguments:
                return self._calls.complete(self._key(event.output_index), event.arguments)
            case "response.output_item.done" if event.item is not None:
                return self._item_done(event.output_index, event.item)
        return []

    def _announce(self, output_index: int, item: _Item) -> list[ModelEvent]:
        if item.type != "function_call":
            return []
        return self._calls.announce(self._key(output_index), item.call_id or item.id or "", item.name or "")

    def _item_done(self, output_index: int, item: _Item) -> list[ModelEvent]:
        if item.type == "reasoning" and item.encrypted_content:
            return [ReasoningChunk(signature=f"{RESPONSES_MARK}{item.id or ''}", redacted=item.encrypted_content)]
        if item.type != "function_call":
            return []
        known = self._calls.id_of(self._key(output_index))
        events = [] if known else self._announce(output_index, item)
        return events + self._calls.complete(self._key(output_index), item.arguments or "")

    def _key(self, output_index: int) -> int:
        """Our number of a call: the provider counts everything it puts out, we count calls."""
        return self._keys.setdefault(output_index, len(self._keys))


_KNOWN = frozenset(
    {
        "response.output_text.delta",
        "response.refusal.delta",
        "response.completed",
        "response.incomplete",
        "response.failed",
        "response.reasoning_summary_text.delta",
        "response.reasoning_text.delta",
        "response.output_item.added",
        "response.output_item.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
    }
)


def _error_of(response: _Response | None) -> bytes:
    return bytes(response.error) if response is not None else b""


def _usage(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    sent, written = usage.input_tokens_details or _InputDetails(), usage.output_tokens_details or _OutputDetails()
    return Usage(
        input_tokens=usage.input_tokens or 0,
        output_tokens=usage.output_tokens or 0,
        cached_input_tokens=sent.cached_tokens or 0,
        cache_write_tokens=sent.cache_write_tokens or 0,
        reasoning_tokens=written.reasoning_tokens or 0,
    )
