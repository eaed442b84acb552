"""A run's events as frames of the wire. Between the server and the client this is all that happens to a token."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from common.pb.bridle.v1 import message_pb2
from gateway.http import events
from gateway.messages import model, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.pb.bridle.v1 import run_event_pb2

_SAID_TO_IT: Final = frozenset(
    {message_pb2.Message.ROLE_USER, message_pb2.Message.ROLE_SYSTEM, message_pb2.Message.ROLE_APPROVAL}
)
_Calls = model.ToolCallMessage | model.ApprovalRequestMessage


class View(Struct, frozen=True):
    """How a reader wants to see a run."""

    # Deltas as they come, or whole messages per step.
    tokens: bool = False
    pings: bool = True
    # Whether chunks carry their number: those of background runs and of replays do.
    numbered: bool = False
    # Only these types of messages.
    types: frozenset[str] | None = None
    summaries: bool = False
    # Names of the tools whose calls wait: the first delta of a call must already say so.
    guarded: frozenset[str] = frozenset()
    # Whether the reader comes back: what lies before its cursor has been seen.
    after: int = 0


class LiveMessages:
    """Turns one run's events into message objects, in order."""

    def __init__(self, run_id: str, view: View) -> None:
        self._run_id = run_id
        self._view = view
        self._step_id: str | None = None
        self._announced: set[str] = set()
        self._seconds = -1
        self._date = ""
        self._otids: dict[tuple[str, int], str] = {}
        self.last_seq: int | None = None
        self._deltas: dict[str, Callable[[run_event_pb2.RunEvent], model.LettaMessage]] = {
            "text_delta": self._text,
            "reasoning_delta": self._reasoning,
            "tool_call_delta": self._call,
        }

    def ping(self) -> bytes:
        """What a quiet stream shows: a ping, or a comment for those who want none."""
        if not self._view.pings:
            return events.KEEP_ALIVE
        return events.frame(
            model.Ping(
                id=f"ping-{uuid.uuid4()}",
                date=self._date or stored.now(),
                run_id=self._run_id,
                seq_id=self.last_seq if self._view.numbered else None,
            )
        )

    def frames(self, kind: str, event: run_event_pb2.RunEvent) -> bytes:
        """The frames of one event; none for most kinds."""
        self.last_seq = event.seq
        handler = self._deltas.get(kind)
        if handler is not None:
            if not self._view.tokens:
                return b""
            chunk = handler(event)
            return events.frame(chunk) if self._wanted(chunk) else b""
        if kind == "message_added":
            return b"".join(events.frame(each) for each in self._added(event))
        if kind == "step_started":
            self._step_id = event.step_started.step_id
        return b""

    def objects(self, kind: str, event: run_event_pb2.RunEvent) -> list[model.LettaMessage]:
        """Whole messages only, for an answer that is not streamed."""
        return self._added(event) if kind == "message_added" else []

    def _added(self, event: run_event_pb2.RunEvent) -> list[model.LettaMessage]:
        message = event.message_added.message
        role = message.role
        if role in _SAID_TO_IT or (role == message_pb2.Message.ROLE_SUMMARY and not self._view.summaries):
            return []
        found = stored.objects(message, summaries=self._view.summaries)
        if self._view.tokens and role == message_pb2.Message.ROLE_ASSISTANT:
            found = self._not_shown_yet(found)
        if self._view.numbered:
            found = self._number(found, event.seq)
        return [each for each in found if self._wanted(each)]

    def _not_shown_yet(self, found: list[model.LettaMessage]) -> list[model.LettaMessage]:
        """Of a turn that was shown token by token: what has no tokens, and calls that were not known to wait."""
        return [
            each
            for each in found
            if isinstance(each, model.HiddenReasoningMessage)
            or (
                isinstance(each, model.ApprovalRequestMessage)
                and not self._view.after
                and each.tool_call.tool_call_id not in self._announced
            )
        ]

    def _number(self, found: list[model.LettaMessage], seq: int) -> list[model.LettaMessage]:
        """Each its own number. The deltas that these stand for have left the numbers below unused, so that a reader
        who comes back in the middle of a turn is shown the rest of it."""
        first = seq - len(found) + 1
        numbered = [model.with_seq(each, first + index) for index, each in enumerate(found)]
        return [each for each in numbered if each.seq_id is None or each.seq_id > self._view.after]

    def _wanted(self, chunk: model.LettaMessage) -> bool:
        types = self._view.types
        return types is None or model.type_of(chunk) in types

    def _common(self, event: run_event_pb2.RunEvent, message_id: str, part: int) -> dict[str, Any]:
        seconds = event.time.seconds
        if seconds != self._seconds:
            self._seconds, self._date = seconds, stored.date(seconds)
        key = (message_id, part)
        otid = self._otids.get(key)
        if otid is None:
            otid = self._otids[key] = stored.otid(message_id, part)
        return {
            "id": message_id,
            "date": self._date,
            "otid": otid,
            "step_id": self._step_id,
            "run_id": self._run_id,
            "seq_id": event.seq if self._view.numbered else None,
        }

    def _text(self, event: run_event_pb2.RunEvent) -> model.LettaMessage:
        delta = event.text_delta
        return model.AssistantMessage(content=delta.text, **self._common(event, delta.message_id, delta.part))

    def _reasoning(self, event: run_event_pb2.RunEvent) -> model.LettaMessage:
        delta = event.reasoning_delta
        return model.ReasoningMessage(reasoning=delta.text, **self._common(event, delta.message_id, delta.part))

    def _call(self, event: run_event_pb2.RunEvent) -> model.LettaMessage:
        delta = event.tool_call_delta
        waits = delta.name in self._view.guarded
        if waits:
            self._announced.add(delta.tool_call_id)
        kind: type[_Calls] = model.ApprovalRequestMessage if waits else model.ToolCallMessage
        shown = model.ToolCall(delta.name, delta.arguments or None, delta.tool_call_id)
        return kind(tool_call=shown, tool_calls=shown, **self._common(event, delta.message_id, delta.part))
