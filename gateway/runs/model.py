"""Runs and steps as objects of the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from common.ids import DEFAULT_ORGANIZATION
from common.pb.bridle.v1 import run_pb2
from gateway.messages.ending import stop_reason
from gateway.messages.stored import moment
from gateway.runs.begin import KEPT, kept
from gateway.structs import plain

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration
    from google.protobuf.timestamp_pb2 import Timestamp

    from common.pb.bridle.v1 import usage_pb2

_State = run_pb2.Run
# A run that waits reads as completed, with the stop reason requires_approval: pollers of the wire expect that.
STATUSES: Final[dict[str, tuple[int, ...]]] = {
    "created": (_State.STATE_QUEUED,),
    "running": (_State.STATE_RUNNING,),
    "completed": (_State.STATE_COMPLETED, _State.STATE_AWAITING_APPROVAL),
    "failed": (_State.STATE_FAILED,),
    "cancelled": (_State.STATE_CANCELLED,),
    "pending": (),
    "expired": (),
}
_STATUS_OF: Final = {state: status for status, states in STATUSES.items() for state in states}
_STEP_STATUS: Final = {
    run_pb2.Step.STATUS_PENDING: "pending",
    run_pb2.Step.STATUS_SUCCEEDED: "success",
    run_pb2.Step.STATUS_FAILED: "failed",
    run_pb2.Step.STATUS_CANCELLED: "cancelled",
}


class Run(Struct, frozen=True, kw_only=True):
    """One piece of work of an agent."""

    id: str
    agent_id: str
    status: str
    created_at: str | None
    completed_at: str | None
    conversation_id: str
    background: bool
    metadata: dict[str, Any]
    request_config: dict[str, Any]
    stop_reason: str | None
    base_template_id: None = None
    callback_url: str | None = None
    callback_sent_at: str | None = None
    callback_status_code: int | None = None
    callback_error: str | None = None
    ttft_ns: int | None = None
    total_duration_ns: int | None = None


class Step(Struct, frozen=True, kw_only=True):
    """One model call of a run and what followed from it."""

    id: str
    run_id: str
    agent_id: str
    status: str
    model: str | None
    model_handle: str | None
    provider_name: str | None
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_input_tokens: int | None
    cache_write_tokens: int | None
    reasoning_tokens: int | None
    completion_tokens_details: dict[str, int] | None
    prompt_tokens_details: dict[str, int] | None
    stop_reason: str | None
    error_type: str | None = None
    error_data: dict[str, Any] | None = None
    origin: str | None = None
    organization_id: str | None = None
    provider_id: str | None = None
    provider_category: str | None = None
    model_endpoint: str | None = None
    context_window_limit: int | None = None
    tags: list[str] = []
    tid: str | None = None
    trace_id: str | None = None
    request_id: str | None = None
    messages: list[Any] = []
    feedback: str | None = None
    project_id: str | None = None


class RunUsage(Struct, frozen=True):
    """What a run spent, over all of its steps."""

    completion_tokens: int
    prompt_tokens: int
    total_tokens: int
    prompt_tokens_details: dict[str, int] | None
    completion_tokens_details: dict[str, int] | None


class RunMetrics(Struct, frozen=True, kw_only=True):
    """How long a run took, and what it used."""

    id: str
    agent_id: str
    run_start_ns: int | None
    run_ns: int | None
    num_steps: int
    # Names, not ids: a tool may be gone by now.
    tools_used: list[str] | None
    organization_id: str = DEFAULT_ORGANIZATION
    project_id: str | None = None
    template_id: str | None = None
    base_template_id: str | None = None


def run_object(run: run_pb2.Run) -> Run:
    """A run."""
    waiting = run.state == _State.STATE_AWAITING_APPROVAL
    metadata: dict[str, Any] = plain(run.metadata)
    metadata.pop(KEPT, None)
    if run.HasField("error"):
        metadata["error"] = {
            "error_type": run.error.type,
            "message": run.error.message,
            "detail": run.error.detail or None,
        }
    return Run(
        id=run.id,
        agent_id=run.agent_id,
        status=_STATUS_OF.get(run.state, "running"),
        created_at=_when(run.create_time),
        # The wire's pollers take a run that waits for one that has ended.
        completed_at=_when(run.stop_time) or (_when(run.start_time) if waiting else None),
        conversation_id=run.conversation_id,
        background=run.background,
        metadata=metadata,
        request_config=_request_config(run),
        stop_reason=stop_reason(run.stop_reason),
        callback_url=run.callback.url or None,
        callback_sent_at=_when(run.callback.attempt_time),
        callback_status_code=run.callback.status_code or None,
        callback_error=run.callback.error or None,
        ttft_ns=_nanoseconds(run.time_to_first_token) if run.HasField("time_to_first_token") else None,
        total_duration_ns=_nanoseconds(run.duration) if run.HasField("duration") else None,
    )


def _request_config(run: run_pb2.Run) -> dict[str, Any]:
    asked = kept(run)
    types = asked.get("include_return_message_types")
    return {
        "use_assistant_message": asked.get("use_assistant_message", True),
        "assistant_message_tool_name": "send_message",
        "assistant_message_tool_kwarg": "message",
        "include_return_message_types": list(types) if types is not None else None,
    }


def step_object(step: run_pb2.Step) -> Step:
    """A step."""
    provider, _, name = step.model.partition("/")
    usage = step.usage
    return Step(
        id=step.id,
        run_id=step.run_id,
        agent_id=step.agent_id,
        status=_STEP_STATUS.get(step.status, "pending"),
        model=name or step.model or None,
        model_handle=step.model or None,
        provider_name=provider if name else None,
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        completion_tokens_details=_completion_details(usage),
        prompt_tokens_details=_prompt_details(usage),
        stop_reason=stop_reason(step.stop_reason),
        error_type=step.error.type or None,
        error_data={"message": step.error.message, "detail": step.error.detail} if step.HasField("error") else None,
    )


def usage_object(usage: usage_pb2.Usage) -> RunUsage:
    """What a run spent."""
    return RunUsage(
        completion_tokens=usage.output_tokens,
        prompt_tokens=usage.input_tokens,
        total_tokens=usage.input_tokens + usage.output_tokens,
        prompt_tokens_details=_prompt_details(usage),
        completion_tokens_details=_completion_details(usage),
    )


def _prompt_details(usage: usage_pb2.Usage) -> dict[str, int] | None:
    if not usage.cached_input_tokens and not usage.cache_write_tokens:
        return None
    return {
        "cached_tokens": usage.cached_input_tokens,
        "cache_read_tokens": usage.cached_input_tokens,
        "cache_creation_tokens": usage.cache_write_tokens,
    }


def _completion_details(usage: usage_pb2.Usage) -> dict[str, int] | None:
    return {"reasoning_tokens": usage.reasoning_tokens} if usage.reasoning_tokens else None


def metrics_object(run: run_pb2.Run) -> RunMetrics:
    """What a run took and used."""
    return RunMetrics(
        id=run.id,
        agent_id=run.agent_id,
        run_start_ns=run.start_time.ToNanoseconds() if run.HasField("start_time") else None,
        run_ns=_nanoseconds(run.duration) if run.HasField("duration") else None,
        num_steps=run.step_count,
        tools_used=list(run.tools_used) or None,
    )


def _when(stamp: Timestamp) -> str | None:
    return moment(stamp) if stamp.seconds or stamp.nanos else None


def _nanoseconds(span: Duration) -> int:
    return span.ToNanoseconds()
