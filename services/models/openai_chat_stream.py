"""Reads the stream of a Chat Completions call, as OpenAI writes it and as others do."""

from typing import Any

import msgspec
from msgspec import Struct

from services.models.api import Finish, Finished, ModelEvent, ReasoningChunk, TextChunk
from services.models.calls import Calls
from services.models.failures import broken, complaint, refusal
from services.models.history import CHAT_MARK
from services.runs.model import Usage

_DONE = b"[DONE]"
_FINISHES = {
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "content_filter": Finish.REFUSAL,
    "tool_calls": Finish.TOOL_CALLS,
    "function_call": Finish.TOOL_CALLS,
}


class _Function(Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallDelta(Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_CallDelta] | None = None


class _Choice(Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _InputDetails(Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(Struct):
    reasoning_tokens: int | None = None


class _Usage(Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None


class _Chunk(Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


_decode = msgspec.json.Decoder(_Chunk).decode


class ChatReader:
    """One turn, from its chunks."""

    def __init__(self, tool_names: frozenset[str]) -> None:
        self._calls = Calls(tool_names)
        self._keys: dict[int, int] = {}
        self._finish: str | None = None
        self._refused = False
        self._thinking = ""
        self.usage: Usage | None = None
        self.done = False

    @property
    def complete(self) -> bool:
        """Whether the model has finished, though the usage may still be missing."""
        return self._finish is not None

    def read(self, data: bytes) -> list[ModelEvent]:
        """What one chunk says."""
        if data == _DONE:
            self.done = True
            return []
        chunk = _decode(data)
        if bytes(chunk.error) not in (b"", b"null"):
            raise refusal(complaint(data), {})
        if chunk.usage is not None:
            self.usage = _usage(chunk.usage)
        if not chunk.choices:
            return []
        choice = chunk.choices[0]
        if choice.finish_reason:
            self._finish = choice.finish_reason
        return self._delta(choice.delta) if choice.delta is not None else []

    def end(self) -> list[ModelEvent]:
        """The end of the turn."""
        if self._finish is None:
            raise broken("The model's answer broke off.")
        finish = _FINISHES.get(self._finish, Finish.STOP)
        if self._refused:
            finish = Finish.REFUSAL
        # Some servers say "stop" after calls, and "tool_calls" without any.
        elif finish in (Finish.STOP, Finish.TOOL_CALLS):
            finish = Finish.TOOL_CALLS if self._calls else Finish.STOP
        return [*self._seal(), *self._calls.end(), Finished(finish, self.usage)]

    def _delta(self, delta: _Delta) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            self._thinking = "reasoning_content" if delta.reasoning_content else "reasoning"
            events.append(ReasoningChunk(thought))
        if delta.content:
            events += self._seal()
            events.append(TextChunk(delta.content))
        if delta.refusal:
            self._refused = True
            events += self._seal()
            events.append(TextChunk(delta.refusal))
        if delta.tool_calls:
            events += self._seal()
            for call in delta.tool_calls:
                events += self._call(call)
        return events

    def _seal(self) -> list[ModelEvent]:
        """Reasoning is over: note by which name it came, for that is how it is passed back."""
        if not self._thinking:
            return []
        mark, self._thinking = CHAT_MARK + self._thinking, ""
        return [ReasoningChunk(signature=mark)]

    def _call(self, delta: _CallDelta) -> list[ModelEvent]:
        function = delta.function or _Function()
        arguments = function.arguments or ""
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        key = self._key(delta)
        return self._calls.add(key, call_id=delta.id or "", name=function.name or "", arguments=arguments)

    def _key(self, delta: _CallDelta) -> int:
        """Which call is meant. Some servers give no index, or the same index to every call, with different ids."""
        last = self._calls.last_key()
        if delta.index is None:
            fresh = last < 0 or bool(delta.id and self._calls.id_of(last) not in ("", delta.id))
            return last + 1 if fresh else last
        key = self._keys.setdefault(delta.index, delta.index)
        if delta.id and self._calls.id_of(key) not in ("", delta.id):
            key = self._keys[delta.index] = last + 1
        return key


def _usage(usage: _Usage) -> Usage:
    sent, written = usage.prompt_tokens_details or _InputDetails(), usage.completion_tokens_details or _OutputDetails()
    return Usage(
        input_tokens=usage.prompt_tokens or 0,
        output_tokens=usage.completion_tokens or 0,
        cached_input_tokens=sent.cached_tokens or 0,
        cache_write_tokens=sent.cache_write_tokens or 0,
        reasoning_tokens=written.reasoning_tokens or 0,
    )
