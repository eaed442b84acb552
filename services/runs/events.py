"""The entries of a run's log. Deltas are shown as they come; everything else only after it is durable."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from msgspec import Struct

from services.messages.model import Message, ToolReturn
from services.runs.model import Approval, Run, Step


class RunStarted(Struct, frozen=True, tag="run_started"):
    """The run started."""


class StepStarted(Struct, frozen=True, tag="step_started"):
    """A model call is about to be made; its turn will be the message of this id."""

    step_id: str
    number: int
    message_id: str


class TextDelta(Struct, frozen=True, tag="text"):
    """A piece of text of the turn."""

    message_id: str
    part: int
    text: str


class ReasoningDelta(Struct, frozen=True, tag="reasoning"):
    """A piece of reasoning of the turn."""

    message_id: str
    part: int
    text: str


class ToolCallDelta(Struct, frozen=True, tag="call"):
    """A piece of a tool call of the turn."""

    message_id: str
    part: int
    call_id: str
    name: str
    arguments: str


class MessageAdded(Struct, frozen=True, tag="message"):
    """A message is in the conversation's log, whole."""

    message: Message


class ToolStarted(Struct, frozen=True, tag="tool_started"):
    """A tool is about to run."""

    call_id: str
    name: str


class ToolProgress(Struct, frozen=True, tag="tool_progress"):
    """A running tool reports."""

    call_id: str
    text: str


class ToolFinished(Struct, frozen=True, tag="tool_finished"):
    """A tool call has its one outcome."""

    result: ToolReturn


class ApprovalRequested(Struct, frozen=True, tag="approval_requested"):
    """The run waits for an answer."""

    approval: Approval


class ApprovalDecided(Struct, frozen=True, tag="approval_decided"):
    """The answer came, or its time ran out, or the run was cancelled."""

    approval: Approval


class ContextCompacted(Struct, frozen=True, tag="compacted"):
    """Older messages were summarised: the context is this message, and the log from the floor."""

    message_id: str
    floor: int
    messages_before: int
    messages_after: int


class StepFinished(Struct, frozen=True, tag="step_finished"):
    """A step ended."""

    step: Step


class Restarted(Struct, frozen=True, tag="restarted"):
    """The run changed hands after a crash: the events of this range are void."""

    void_from_seq: int
    void_to_seq: int


class Truncated(Struct, frozen=True, tag="truncated"):
    """Older events were deleted by the retention setting."""

    through_seq: int


class RunStopped(Struct, frozen=True, tag="stopped"):
    """The run reached a final state. Always the last event, exactly once."""

    run: Run


Event = (
    RunStarted
    | StepStarted
    | TextDelta
    | ReasoningDelta
    | ToolCallDelta
    | MessageAdded
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | ApprovalRequested
    | ApprovalDecided
    | ContextCompacted
    | StepFinished
    | Restarted
    | Truncated
    | RunStopped
)

DELTAS = (TextDelta, ReasoningDelta, ToolCallDelta)


class Entry(Struct, frozen=True, array_like=True):
    """An event and its place in the run's log."""

    seq: int
    time: datetime
    event: Event


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Entry])


def encode(entries: Sequence[Entry]) -> bytes:
    """A batch as it is stored."""
    return _encoder.encode(entries)


def decode(payload: bytes) -> list[Entry]:
    """A stored batch."""
    return _decoder.decode(payload)
