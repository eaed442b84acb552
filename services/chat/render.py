"""Events of a run, as a person reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.pb.bridle.v1 import approval_pb2, message_pb2, run_pb2, stop_reason_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from common.pb.bridle.v1 import run_event_pb2
    from services.chat.screen import Screen, Style

_MOST_RESULT: Final = 2000

_OUTCOMES: Final = {
    message_pb2.ToolReturn.OUTCOME_SUCCEEDED: "returned",
    message_pb2.ToolReturn.OUTCOME_FAILED: "failed:",
    message_pb2.ToolReturn.OUTCOME_DENIED: "was denied:",
    message_pb2.ToolReturn.OUTCOME_CANCELLED: "was cancelled:",
    message_pb2.ToolReturn.OUTCOME_UNKNOWN: "was cut off by a crash:",
}

_SPEAKERS: Final = {
    message_pb2.Message.ROLE_SYSTEM: "system",
    message_pb2.Message.ROLE_USER: "you",
    message_pb2.Message.ROLE_ASSISTANT: "agent",
    message_pb2.Message.ROLE_SUMMARY: "summary",
}


class EventView:
    """Shows a run's events: text as it comes, everything else dimmed."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        # What was shown of the parts of messages that are still being written.
        self._shown: dict[tuple[str, int], str] = {}
        self._last: tuple[str, int] | None = None

    def show(self, event: run_event_pb2.RunEvent) -> None:
        """Show one event; unknown kinds are not an error, the contract may grow."""
        match event.WhichOneof("event"):
            case "text_delta":
                self._append(event.text_delta, "plain")
            case "reasoning_delta":
                self._append(event.reasoning_delta, "dim")
            case "message_added":
                self._complete(event.message_added.message)
            case "tool_progress":
                self._screen.line(f"* {event.tool_progress.text}", "dim")
            case "tool_finished":
                self._screen.line(_returned(event.tool_finished.result), "dim")
            case "run_stopped":
                self._stopped(event.run_stopped.run)
            case kind if kind is not None:
                self._remark(kind, event)

    def history(self, messages: Iterable[message_pb2.Message]) -> None:
        """Show messages of the past."""
        for message in messages:
            speaker = _SPEAKERS.get(message.role)
            for part in message.parts:
                if part.HasField("text") and speaker:
                    self._screen.line(f"{speaker}: {part.text.text}")
                elif part.HasField("tool_call"):
                    self._screen.line(_called(part.tool_call), "dim")
                elif part.HasField("tool_return"):
                    self._screen.line(_returned(part.tool_return), "dim")

    def _append(self, delta: run_event_pb2.TextDelta | run_event_pb2.ReasoningDelta, style: Style) -> None:
        self._piece((delta.message_id, delta.part), delta.text, style)

    def _piece(self, key: tuple[str, int], text: str, style: Style) -> None:
        if key != self._last:
            self._screen.end_line()
            self._last = key
        self._shown[key] = self._shown.get(key, "") + text
        self._screen.write(text, style)

    def _complete(self, message: message_pb2.Message) -> None:
        """The whole message is there: show what its deltas did not."""
        if message.role != message_pb2.Message.ROLE_ASSISTANT:
            return
        for number, part in enumerate(message.parts):
            match part.WhichOneof("part"):
                case "text":
                    self._rest(message.id, number, part.text.text, "plain")
                case "reasoning":
                    self._rest(message.id, number, part.reasoning.text, "dim")
                case "tool_call":
                    self._screen.line(_called(part.tool_call), "dim")
        self._shown = {key: text for key, text in self._shown.items() if key[0] != message.id}

    def _rest(self, message_id: str, number: int, text: str, style: Style) -> None:
        key = (message_id, number)
        seen = self._shown.get(key, "")
        if text.startswith(seen):
            text = text[len(seen) :]
        else:
            self._screen.end_line()
        if text:
            self._piece(key, text, style)

    def _stopped(self, run: run_pb2.Run) -> None:
        self._screen.end_line()
        self._shown.clear()
        self._last = None
        if run.state == run_pb2.Run.STATE_FAILED:
            self._screen.error(f"the run failed: {run.error.message}")
        elif run.state == run_pb2.Run.STATE_CANCELLED:
            self._screen.note("cancelled")
        elif run.stop_reason == stop_reason_pb2.STOP_REASON_MAX_STEPS:
            self._screen.note("stopped: the most steps of a run were used up")

    def _remark(self, kind: str, event: run_event_pb2.RunEvent) -> None:
        match kind:
            case "approval_decided":
                self._decided(event.approval_decided.approval)
            case "context_compacted":
                self._screen.note("older messages were summarised")
            case "restarted":
                self._screen.note("the server lost its place and repeats the last step; forget what was unfinished")
                self._shown.clear()
            case "truncated":
                self._screen.note("older events are gone; /history shows the messages")

    def _decided(self, approval: approval_pb2.Approval) -> None:
        if approval.state == approval_pb2.Approval.STATE_EXPIRED:
            self._screen.note("nobody answered in time: denied")


def _called(call: message_pb2.ToolCall) -> str:
    return f"* call {call.name} {call.arguments}"


def _returned(result: message_pb2.ToolReturn) -> str:
    text = "".join(part.text.text if part.HasField("text") else "[image]" for part in result.content)
    if len(text) > _MOST_RESULT:
        text = f"{text[:_MOST_RESULT]}... ({len(text)} characters)"
    return f"* {result.tool_name} {_OUTCOMES.get(result.outcome, 'ended:')} {text}".rstrip()
