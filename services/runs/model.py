"""What a run, a step, an approval and a signal are. Values only: no storage, no transport."""

from datetime import datetime
from enum import StrEnum
from typing import Any

from msgspec import Struct

from services.messages.model import Decision, InputMessage, ToolCall


class RunState(StrEnum):
    """Where a run stands; the transitions are in TRANSITIONS."""

    QUEUED = "queued"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def final(self) -> bool:
        """Whether nothing can follow."""
        return not TRANSITIONS[self]


TRANSITIONS: dict[RunState, frozenset[RunState]] = {
    RunState.QUEUED: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.RUNNING: frozenset(
        {
            RunState.RUNNING,
            RunState.AWAITING_APPROVAL,
            RunState.COMPLETED,
            RunState.FAILED,
            RunState.CANCELLED,
        }
    ),
    RunState.AWAITING_APPROVAL: frozenset({RunState.RUNNING, RunState.CANCELLED}),
    RunState.COMPLETED: frozenset(),
    RunState.FAILED: frozenset(),
    RunState.CANCELLED: frozenset(),
}


class StopReason(StrEnum):
    """Why a run stopped; the values are the wire's."""

    END_TURN = "end_turn"
    MAX_STEPS = "max_steps"
    TOOL_RULE = "tool_rule"
    REQUIRES_APPROVAL = "requires_approval"
    CANCELLED = "cancelled"
    ERROR = "error"
    LLM_API_ERROR = "llm_api_error"
    INVALID_LLM_RESPONSE = "invalid_llm_response"
    INVALID_TOOL_CALL = "invalid_tool_call"
    MAX_TOKENS_EXCEEDED = "max_tokens_exceeded"
    NO_TOOL_CALL = "no_tool_call"
    INSUFFICIENT_CREDITS = "insufficient_credits"
    CONTEXT_WINDOW_OVERFLOW_IN_SYSTEM_PROMPT = "context_window_overflow_in_system_prompt"
    REFUSAL = "refusal"

    @property
    def state(self) -> RunState:
        """The state a run that stops for this reason is in."""
        return _STATE_OF_REASON.get(self, RunState.FAILED)


_STATE_OF_REASON = {
    StopReason.END_TURN: RunState.COMPLETED,
    StopReason.MAX_STEPS: RunState.COMPLETED,
    StopReason.TOOL_RULE: RunState.COMPLETED,
    StopReason.REQUIRES_APPROVAL: RunState.AWAITING_APPROVAL,
    StopReason.CANCELLED: RunState.CANCELLED,
}


class Usage(Struct, frozen=True, omit_defaults=True):
    """Tokens spent."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_input_tokens=self.cached_input_tokens + other.cached_input_tokens,
            cache_write_tokens=self.cache_write_tokens + other.cache_write_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
            estimated=self.estimated or other.estimated,
        )


class RunError(Struct, frozen=True, omit_defaults=True):
    """What went wrong, in a form that is stored and shown."""

    type: str
    message: str
    detail: str = ""


class OnBusy(StrEnum):
    """What to do if another run of the conversation is live."""

    ENQUEUE = "enqueue"
    REJECT = "reject"
    INTERRUPT = "interrupt"
    STEER = "steer"


class OnPendingApproval(StrEnum):
    """What to do if the conversation waits for an approval."""

    REFUSE = "refuse"
    DENY_AND_CONTINUE = "deny_and_continue"


class Trigger(StrEnum):
    """What a compaction was started by."""

    THRESHOLD = "threshold"
    PROVIDER = "provider"
    REQUEST = "request"


class ClientTool(Struct, frozen=True, omit_defaults=True):
    """A tool that the caller runs, for one run."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}


class RunOptions(Struct, frozen=True, omit_defaults=True):
    """How a run is to go."""

    max_steps: int = 50
    on_busy: OnBusy = OnBusy.ENQUEUE
    on_pending_approval: OnPendingApproval = OnPendingApproval.REFUSE
    client_tools: tuple[ClientTool, ...] = ()
    background: bool = False
    model: str = ""
    system: str = ""
    metadata: dict[str, Any] = {}
    callback_url: str = ""


class RunRequest(Struct, frozen=True, omit_defaults=True):
    """What a caller asked for. It becomes messages only when the run starts."""

    messages: tuple[InputMessage, ...]
    options: RunOptions = RunOptions()


class CancelPhase(StrEnum):
    """What a run was doing when a cancel reached it."""

    QUEUED = "queued"
    FIRST_TOKEN = "first_token"  # noqa: S105 - a phase, not a password
    STREAMING = "streaming"
    TOOLS = "tools"
    BETWEEN_STEPS = "between_steps"
    COMPACTING = "compacting"
    AWAITING_APPROVAL = "awaiting_approval"


class CancelReceipt(Struct, frozen=True, omit_defaults=True):
    """How a cancel went, stage by stage."""

    requested_at: datetime
    requested_by: str = ""
    reason: str = ""
    phase: CancelPhase | None = None
    seen_at: datetime | None = None
    model_closed_at: datetime | None = None
    tools_stopped_at: datetime | None = None
    terminal_at: datetime | None = None


class RunOutcome(Struct, frozen=True, omit_defaults=True):
    """What a run has come to so far: the part of its row that only people read."""

    usage: Usage = Usage()
    step_count: int = 0
    tools_used: tuple[str, ...] = ()
    error: RunError | None = None
    approval_id: str = ""
    cancel: CancelReceipt | None = None
    first_token_us: int | None = None


class Callback(Struct, frozen=True, omit_defaults=True):
    """How telling of the latest stop went."""

    attempts: int
    sent_at: datetime
    status_code: int | None = None
    error: str = ""
    # Whether there will be no further attempt.
    done: bool = False


class Run(Struct, frozen=True):
    """A run as it is stored."""

    id: str
    organization_id: str
    agent_id: str
    conversation_id: str
    no: int
    state: RunState
    stop_reason: StopReason | None
    request: RunRequest
    outcome: RunOutcome
    background: bool
    last_seq: int
    cancel_requested_at: datetime | None
    started_at: datetime | None
    stopped_at: datetime | None
    created_at: datetime
    updated_at: datetime
    callback: Callback | None = None


class StepStatus(StrEnum):
    """Where a step stands."""

    PENDING = "pending"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class StepDetail(Struct, frozen=True, omit_defaults=True):
    """What a step came to."""

    model: str = ""
    usage: Usage = Usage()
    stop_reason: StopReason | None = None
    error: RunError | None = None
    tools_used: tuple[str, ...] = ()
    first_token_us: int | None = None
    model_us: int | None = None
    tool_us: int | None = None
    ended_at: datetime | None = None


class Step(Struct, frozen=True):
    """One model call of a run and what followed from it."""

    id: str
    organization_id: str
    run_id: str
    agent_id: str
    no: int
    status: StepStatus
    detail: StepDetail
    created_at: datetime
    updated_at: datetime


class ApprovalState(StrEnum):
    """Where an approval stands."""

    PENDING = "pending"
    DECIDED = "decided"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


class ApprovalCall(Struct, frozen=True, omit_defaults=True):
    """A call that waits, with the digest of what would run."""

    call: ToolCall
    sha256: str
    client_side: bool = False


class ApprovalDetail(Struct, frozen=True, omit_defaults=True):
    """What is asked and what was answered."""

    message_id: str
    calls: tuple[ApprovalCall, ...]
    decisions: tuple[Decision, ...] = ()
    # Part of the answer: a repeat must be told from another answer.
    follow_up: tuple[InputMessage, ...] = ()


class Approval(Struct, frozen=True):
    """A run's question to a person, as it is stored."""

    id: str
    organization_id: str
    agent_id: str
    conversation_id: str
    run_id: str
    step_id: str
    state: ApprovalState
    detail: ApprovalDetail
    created_at: datetime
    decided_by: str = ""
    decided_at: datetime | None = None
    expires_at: datetime | None = None


class CancelSignal(Struct, frozen=True, tag="cancel", omit_defaults=True):
    """Stop."""

    requested_at: datetime
    requested_by: str = ""
    reason: str = ""


class AnswerSignal(Struct, frozen=True, tag="answer", omit_defaults=True):
    """The open approval was answered."""

    approval_id: str
    decisions: tuple[Decision, ...]
    follow_up: tuple[InputMessage, ...] = ()
    client_tools: tuple[ClientTool, ...] = ()
    state: ApprovalState = ApprovalState.DECIDED


class SteerSignal(Struct, frozen=True, tag="steer"):
    """Messages that join the live run."""

    messages: tuple[InputMessage, ...]


Signal = CancelSignal | AnswerSignal | SteerSignal


class NumberedSignal(Struct, frozen=True):
    """A signal and its place in the run's order of signals."""

    no: int
    signal: Signal
