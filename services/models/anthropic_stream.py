"""Reads the stream of a Messages call."""

import msgspec
from msgspec import Struct

from services.models.api import Finish, Finished, ModelEvent, ReasoningChunk, TextChunk
from services.models.calls import Calls
from services.models.failures import broken, complaint, refusal
from services.runs.model import Usage

_FINISHES = {
    "tool_use": Finish.TOOL_CALLS,
    "max_tokens": Finish.LENGTH,
    "model_context_window_exceeded": Finish.LENGTH,
    "refusal": Finish.REFUSAL,
}


class _OutputDetails(Struct):
    thinking_tokens: int | None = None


class _Usage(Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    output_tokens_details: _OutputDetails | None = None


class _Message(Struct):
    usage: _Usage | None = None


class _Block(Struct):
    type: str = ""
    id: str | None = None
    name: str | None = None
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    input: msgspec.Raw = msgspec.Raw()

    @property
    def filled(self) -> bool:
        """Whether the arguments are here already."""
        return len(bytes(self.input)) > len("{ }") and bytes(self.input) != b"null"


class _Delta(Struct):
    type: str = ""
    text: str | None = None
    thinking: str | None = None
    signature: str | None = None
    partial_json: str | None = None
    stop_reason: str | None = None


class _Event(Struct):
    type: str = ""
    index: int = 0
    delta: _Delta | None = None
    content_block: _Block | None = None
    message: _Message | None = None
    usage: _Usage | None = None


_decode = msgspec.json.Decoder(_Event).decode


class AnthropicReader:
    """One turn, from its events."""

    def __init__(self) -> None:
        self._calls = Calls(frozenset())
        self._keys: dict[int, int] = {}
        self._signatures: dict[int, str] = {}
        self._finish: str | None = None
        self._usage: _Usage | None = None
        self.done = False

    @property
    def complete(self) -> bool:
        """Whether the model has said why it stopped."""
        return self._finish is not None

    @property
    def usage(self) -> Usage | None:
        """What is known of the cost so far: of the prompt from the first event on."""
        return _total(self._usage)

    def read(self, data: bytes) -> list[ModelEvent]:
        """What one event says; what we do not know is passed over."""
        event = _decode(data)
        match event.type:
            case "content_block_delta" if event.delta is not None:
                return self._delta(event.index, event.delta)
            case "content_block_start" if event.content_block is not None:
                return self._block(event.index, event.content_block)
            case "content_block_stop":
                signature = self._signatures.pop(event.index, "")
                return [ReasoningChunk(signature=signature)] if signature else []
            case "message_start" if event.message is not None:
                self._count(event.message.usage)
            case "message_delta":
                self._count(event.usage)
                if event.delta is not None and event.delta.stop_reason:
                    self._finish = event.delta.stop_reason
            case "message_stop":
                self.done = True
            case "error":
                raise refusal(complaint(data), {})
        return []

    def end(self) -> list[ModelEvent]:
        """The end of the turn."""
        if self._finish is None:
            raise broken("The model's answer broke off.")
        finish = _FINISHES.get(self._finish, Finish.STOP)
        return [*self._calls.end(), Finished(finish, self.usage)]

    def _delta(self, index: int, delta: _Delta) -> list[ModelEvent]:
        if delta.text:
            return [TextChunk(delta.text)]
        if delta.partial_json:
            return self._calls.add(self._key(index), arguments=delta.partial_json)
        if delta.thinking:
            return [ReasoningChunk(delta.thinking)]
        if delta.signature:
            self._signatures[index] = self._signatures.get(index, "") + delta.signature
        return []

    def _block(self, index: int, block: _Block) -> list[ModelEvent]:
        match block.type:
            case "text" if block.text:
                return [TextChunk(block.text)]
            case "thinking":
                if block.signature:
                    self._signatures[index] = block.signature
                return [ReasoningChunk(block.thinking)] if block.thinking else []
            case "redacted_thinking" if block.data:
                return [ReasoningChunk(redacted=block.data)]
            case "tool_use":
                key = self._key(index)
                events = self._calls.announce(key, block.id or "", block.name or "")
                # Usually empty here and filled by deltas; compatible servers send it whole.
                return events + (self._calls.complete(key, bytes(block.input).decode()) if block.filled else [])
        return []

    def _key(self, index: int) -> int:
        """Our number of a call: the provider counts all blocks, we count calls."""
        return self._keys.setdefault(index, len(self._keys))

    def _count(self, usage: _Usage | None) -> None:
        """Counts are cumulative; what a later event leaves out stays as it was."""
        if usage is None or self._usage is None:
            self._usage = usage or self._usage
            return
        for name in _Usage.__struct_fields__:
            value = getattr(usage, name)
            if value is not None:
                setattr(self._usage, name, value)


def _total(usage: _Usage | None) -> Usage | None:
    if usage is None:
        return None
    read, written = usage.cache_read_input_tokens or 0, usage.cache_creation_input_tokens or 0
    thought = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details is not None else None
    return Usage(
        # The provider's figure leaves out what it read from and wrote to its cache; ours does not.
        input_tokens=(usage.input_tokens or 0) + read + written,
        output_tokens=usage.output_tokens or 0,
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=thought or 0,
    )
