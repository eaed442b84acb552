"""The words the machine speaks: its state, its inputs, its effects, and the records it wants written."""

from datetime import timedelta
from enum import StrEnum
from typing import Any, Self

import msgspec
from msgspec import Struct

from services.agents.model import CompactionSettings, ToolRule
from services.messages.model import Decision, InputMessage, NewMessage, Outcome, Text, ToolCall, ToolReturn
from services.models.api import Finish as ModelFinish
from services.models.fold import TurnPart
from services.runs.model import (
    ApprovalState,
    ClientTool,
    RunError,
    RunState,
    StepDetail,
    StepStatus,
    StopReason,
    Trigger,
    Usage,
)
from services.runs.rules import Called
from services.tools.api import CrashPolicy, ToolDefinition


class Config(Struct, frozen=True):
    """What the run was given: it does not change while one owner works on it."""

    model: str
    max_steps: int
    rules: tuple[ToolRule, ...]
    tools: dict[str, ToolDefinition]
    client_tools: frozenset[str]
    parallel_calls: bool
    approval_ttl: timedelta | None = None
    compaction: CompactionSettings = CompactionSettings()

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Every tool the model may be offered, in a stable order."""
        return tuple(self.tools)

    def crash_policy(self, name: str) -> CrashPolicy:
        """What to do with a call of this tool that was running at a crash."""
        tool = self.tools.get(name)
        return tool.crash_policy if tool else CrashPolicy.NEVER

    def parallel(self, name: str) -> bool:
        """Whether calls of this tool may run beside others."""
        tool = self.tools.get(name)
        return bool(tool and tool.parallel)


class Phase(StrEnum):
    """What the run is at."""

    NEW = "new"
    MODEL = "model"
    # Never in a snapshot: a new owner asks again whether the context fits.
    COMPACTING = "compacting"
    TOOLS = "tools"
    WAITING = "waiting"
    DONE = "done"


# Where a call's return stands among the others of its step: what was asked about, then what merely waited with it.
APPROVED = 2
WAITED_ALONG = 3
_RAN = (Outcome.SUCCEEDED, Outcome.FAILED)


class Call(Struct, frozen=True, omit_defaults=True):
    """One tool call of the current step."""

    call: ToolCall
    # Whether an answer to it is still missing: a person's verdict, or the client's result.
    waits: bool = False
    client_side: bool = False
    started: bool = False
    result: ToolReturn | None = None
    rank: int = WAITED_ALONG
    # A rule prefilled arguments that cannot be merged with the model's.
    misfit: bool = False
    # It was running at a crash: whether it took effect is unknown, unless it is run again to its end.
    lost: bool = False

    def finished(self, result: ToolReturn) -> Self:
        """With its one outcome."""
        return msgspec.structs.replace(self, result=result)

    def begun(self) -> Self:
        """About to run."""
        return msgspec.structs.replace(self, started=True)

    def unstarted(self) -> Self:
        """To be run again."""
        return msgspec.structs.replace(self, started=False, lost=True)

    def answered(self) -> Self:
        """No longer waiting."""
        return msgspec.structs.replace(self, waits=False)

    def asked_again(self) -> Self:
        """It may have run already: only a person can say whether it may run again."""
        return msgspec.structs.replace(self, started=False, waits=True, lost=True)

    @property
    def executed(self) -> bool:
        """Whether it counts as called, for tool rules: it ran here, or where the client ran it."""
        by_client = self.rank == APPROVED and self.result is not None and self.result.outcome in _RAN
        return self.started or by_client


class State(Struct, frozen=True, omit_defaults=True):
    """Where a run is. Written with every checkpoint; with the log it is all that a new owner needs."""

    run_id: str
    epoch: int
    phase: Phase = Phase.NEW
    step_no: int = 0
    step_id: str = ""
    message_id: str = ""
    approval_id: str = ""
    minted: int = 0
    detail: StepDetail = StepDetail()
    # How often it was tried to make this step's context fit.
    compactions: int = 0
    calls: tuple[Call, ...] = ()
    history: tuple[Called, ...] = ()
    # Of all turns so far: some providers begin again with `call_0` in each of them.
    call_ids: tuple[str, ...] = ()
    joining: tuple[InputMessage, ...] = ()
    # Those that came with the last answer, in place of the request's.
    client_tools: tuple[ClientTool, ...] = ()
    usage: Usage = Usage()
    first_token_us: int | None = None

    def replace(self, **changes: Any) -> Self:
        """A changed copy."""
        return msgspec.structs.replace(self, **changes)


# --- inputs ---------------------------------------------------------------------------------------------------------


class Start(Struct, frozen=True):
    """It is the run's turn."""

    messages: tuple[InputMessage, ...]


class ModelTurn(Struct, frozen=True):
    """The model finished a turn."""

    parts: tuple[TurnPart, ...]
    finish: ModelFinish
    usage: Usage = Usage()
    forced: bool = False
    first_token_us: int | None = None
    model_us: int | None = None


class ModelFailed(Struct, frozen=True):
    """The model call failed; `shown` is the text that clients have seen of it."""

    error: RunError
    stop_reason: StopReason
    shown: tuple[Text, ...] = ()
    usage: Usage = Usage()
    first_token_us: int | None = None


class Overflow(Struct, frozen=True):
    """The context does not fit: the model was not called, or its provider refused the call."""

    error: RunError
    stop_reason: StopReason
    trigger: Trigger
    usage: Usage = Usage()


class Compacted(Struct, frozen=True):
    """A summary was written that can take the place of everything below the floor."""

    summary: str
    floor: int
    messages_before: int
    messages_after: int
    usage: Usage = Usage()


class CompactionFailed(Struct, frozen=True):
    """No summary came of it; `again` is whether another attempt may do better."""

    error: RunError
    stop_reason: StopReason
    trigger: Trigger
    again: bool = False
    usage: Usage = Usage()


class ToolDone(Struct, frozen=True):
    """A tool call ended."""

    result: ToolReturn
    tool_us: int = 0


class Answered(Struct, frozen=True):
    """The open approval was decided."""

    approval_id: str
    decisions: tuple[Decision, ...]
    follow_up: tuple[InputMessage, ...] = ()
    client_tools: tuple[ClientTool, ...] = ()
    state: ApprovalState = ApprovalState.DECIDED


class Steered(Struct, frozen=True):
    """Messages join the run."""

    messages: tuple[InputMessage, ...]


class Cancelled(Struct, frozen=True):
    """Stop. The work in flight is already gone; `shown` is the text that clients have seen of it."""

    shown: tuple[Text, ...] = ()
    usage: Usage = Usage()
    first_token_us: int | None = None
    # A crash, not the cancel, ended what was in flight.
    lost: bool = False


class Broken(Struct, frozen=True):
    """Something in the server itself failed under the run. The work in flight is already gone."""

    error: RunError


class Recovered(Struct, frozen=True):
    """A new owner took over."""

    epoch: int


class Proceed(Struct, frozen=True):
    """What came in is durable: go on from there. An effect, and the input that it leads to."""


Input = (
    Start
    | ModelTurn
    | ModelFailed
    | Overflow
    | Compacted
    | CompactionFailed
    | ToolDone
    | Answered
    | Steered
    | Cancelled
    | Broken
    | Recovered
    | Proceed
)


# --- records: each is a change of the database and an event of the log ------------------------------------------------


class Begin(Struct, frozen=True):
    """The run starts."""


class AddMessage(Struct, frozen=True):
    """A message joins the conversation."""

    message: NewMessage


class MoveFloor(Struct, frozen=True):
    """The context begins here now, with this message, of the same transaction, for what lies below."""

    message_id: str
    floor: int
    messages_before: int
    messages_after: int


class BeginStep(Struct, frozen=True):
    """A model call is about to be made (again, after a crash)."""

    step_id: str
    no: int
    message_id: str


class EndStep(Struct, frozen=True):
    """A step is over."""

    step_id: str
    status: StepStatus
    detail: StepDetail


class OpenApproval(Struct, frozen=True):
    """Somebody is asked."""

    approval_id: str
    step_id: str
    message_id: str
    calls: tuple[Call, ...]


class CloseApproval(Struct, frozen=True):
    """Nobody need answer any more."""

    approval_id: str
    state: ApprovalState
    decisions: tuple[Decision, ...]


class StartTool(Struct, frozen=True):
    """A tool is about to run. From here on its outcome is unknown after a crash."""

    call_id: str
    name: str


class FinishTool(Struct, frozen=True):
    """A tool call has its outcome."""

    result: ToolReturn


class Restart(Struct, frozen=True):
    """A new owner goes on after a crash: what readers saw of this range is void."""

    void_from_seq: int
    void_to_seq: int


class Stop(Struct, frozen=True):
    """The run is over."""

    reason: StopReason
    error: RunError | None = None


Record = (
    Begin
    | AddMessage
    | MoveFloor
    | BeginStep
    | EndStep
    | OpenApproval
    | CloseApproval
    | StartTool
    | FinishTool
    | Restart
    | Stop
)


# --- effects ----------------------------------------------------------------------------------------------------------


class Commit(Struct, frozen=True):
    """Write these, in one transaction, and only then go on."""

    records: tuple[Record, ...]
    state: RunState
    stop_reason: StopReason | None = None
    error: RunError | None = None
    approval_ttl: timedelta | None = None


class CallModel(Struct, frozen=True):
    """Ask the model for a turn."""

    step_id: str
    message_id: str
    tool_names: tuple[str, ...]
    forced: bool
    parallel: bool


class Compact(Struct, frozen=True):
    """Have older messages summarised; the first attempt is number 1, and `error` is why it is made."""

    attempt: int
    trigger: Trigger
    error: RunError


class RunTools(Struct, frozen=True):
    """Run these calls, side by side."""

    calls: tuple[ToolCall, ...]


class Passivate(Struct, frozen=True):
    """Nothing to do until somebody answers: let go of everything."""


class Finish(Struct, frozen=True):
    """Nothing to do ever again."""


Effect = Commit | CallModel | Compact | RunTools | Proceed | Passivate | Finish
