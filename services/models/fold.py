"""Folds a provider's events into one turn. Unary calls, streams and cancelled calls all read the same fold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from services.messages.model import Reasoning, Text, ToolCall
from services.models.api import (
    CallArguments,
    CallStarted,
    Finish,
    Finished,
    ModelEvent,
    ReasoningChunk,
    TextChunk,
)
from services.runs.events import ReasoningDelta, TextDelta, ToolCallDelta

if TYPE_CHECKING:
    from services.runs.model import Usage

TurnPart = Text | Reasoning | ToolCall
Delta = TextDelta | ReasoningDelta | ToolCallDelta


class _Open(Struct):
    """A part that is still being written."""

    kind: str
    text: list[str]
    signature: str = ""
    redacted: str = ""
    call_id: str = ""
    name: str = ""


class TurnFold:
    """Collects what the model writes and says what a reader is to be shown of each event."""

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._parts: list[_Open] = []
        self._calls: dict[int, int] = {}
        self.finish: Finish | None = None
        self.usage: Usage | None = None

    @property
    def started(self) -> bool:
        """Whether anything has come yet."""
        return bool(self._parts)

    def add(self, event: ModelEvent) -> Delta | None:
        """Take one event; the delta is None for what only matters at the end."""
        match event:
            case TextChunk(text=text):
                return TextDelta(self._message_id, self._append("text", text), text) if text else None
            case ReasoningChunk():
                return self._reason(event)
            case CallStarted(index=index, id=given, name=name):
                call_id = given or made_up_call_id(self._message_id, len(self._calls))
                self._calls[index] = len(self._parts)
                self._parts.append(_Open("call", [], call_id=call_id, name=name))
                return ToolCallDelta(self._message_id, self._calls[index], call_id, name, "")
            case CallArguments(index=index, text=text):
                part = self._parts[self._calls[index]]
                part.text.append(text)
                return ToolCallDelta(self._message_id, self._calls[index], part.call_id, part.name, text)
            case Finished(finish=finish, usage=usage):
                self.finish, self.usage = finish, usage
                return None

    def parts(self) -> tuple[TurnPart, ...]:
        """The whole turn."""
        return tuple(_close(part) for part in self._parts)

    def shown_text(self) -> tuple[Text, ...]:
        """What is kept of a turn that was cut: the text a client has seen. An unfinished call is nothing."""
        return tuple(Text("".join(part.text)) for part in self._parts if part.kind == "text")

    def _append(self, kind: str, text: str) -> int:
        if not self._parts or self._parts[-1].kind != kind:
            self._parts.append(_Open(kind, []))
        self._parts[-1].text.append(text)
        return len(self._parts) - 1

    def _reason(self, chunk: ReasoningChunk) -> ReasoningDelta | None:
        # What is sealed is closed: what follows is another piece of reasoning, with a seal of its own.
        if self._parts and (self._parts[-1].signature or self._parts[-1].redacted):
            self._parts.append(_Open("reasoning", []))
        index = self._append("reasoning", chunk.text)
        part = self._parts[index]
        part.signature += chunk.signature
        part.redacted += chunk.redacted
        return ReasoningDelta(self._message_id, index, chunk.text) if chunk.text else None


def made_up_call_id(message_id: str, index: int) -> str:
    """An id for a call that came without one; deltas and the stored call must agree on it."""
    return f"call_{message_id.removeprefix('message-')[:8]}_{index}"


def _close(part: _Open) -> TurnPart:
    text = "".join(part.text)
    if part.kind == "call":
        return ToolCall(id=part.call_id, name=part.name, arguments=text)
    if part.kind == "reasoning":
        return Reasoning(text=text, signature=part.signature, redacted=part.redacted)
    return Text(text)
