"""How an answer ends: why it stopped, what it cost, or what went wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from common.pb.bridle.v1 import run_pb2, stop_reason_pb2, usage_pb2
from gateway import errors
from gateway.http import events
from gateway.messages.model import ErrorMessage, StopReason, UsageStatistics

if TYPE_CHECKING:
    from gateway.errors import RpcFailure

_PREFIX: Final = "STOP_REASON_"
# Not known to the SDKs, which would take an unknown value for another kind of message.
_RENAMED: Final = {stop_reason_pb2.STOP_REASON_REFUSAL: "llm_api_error"}
_ENCODED_USAGE: Final = (
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "cache_write_tokens",
    "reasoning_tokens",
)


def stop_reason(reason: stop_reason_pb2.StopReason.ValueType) -> str | None:
    """The wire's word for why a run stopped; None if it has not."""
    if not reason:
        return None
    renamed = _RENAMED.get(reason)
    return renamed or stop_reason_pb2.StopReason.Name(reason).removeprefix(_PREFIX).lower()


def usage(run: run_pb2.Run, before: run_pb2.Run | None = None) -> UsageStatistics:
    """What was spent; `before` is the run as it was when this request joined it."""
    spent = _since(run.usage, before.usage if before is not None else None)
    return UsageStatistics(
        completion_tokens=spent.output_tokens,
        prompt_tokens=spent.input_tokens,
        total_tokens=spent.input_tokens + spent.output_tokens,
        step_count=run.step_count - (before.step_count if before is not None else 0),
        run_ids=[run.id],
        cached_input_tokens=spent.cached_input_tokens,
        cache_write_tokens=spent.cache_write_tokens,
        reasoning_tokens=spent.reasoning_tokens,
    )


def _since(now: usage_pb2.Usage, before: usage_pb2.Usage | None) -> usage_pb2.Usage:
    if before is None:
        return now
    return usage_pb2.Usage(**{name: getattr(now, name) - getattr(before, name) for name in _ENCODED_USAGE})


def frames(run: run_pb2.Run, before: run_pb2.Run | None, seq_id: int | None) -> bytes:
    """The last frames of a stream: exactly one stop reason, then the usage or the error, then the end marker."""
    reason = events.frame(StopReason(stop_reason(run.stop_reason) or "error"))
    if errors.run_problem(run) is not None:
        error = ErrorMessage(run.id, run.error.type, run.error.message, run.error.detail or None, seq_id)
        return reason + events.error_frame(error) + events.DONE
    if run.state == run_pb2.Run.STATE_CANCELLED:
        return reason + events.DONE
    return reason + events.frame(usage(run, before)) + events.DONE


def failure_frames(failure: RpcFailure, run_id: str, error_type: str = "internal_error") -> bytes:
    """The last frames of a stream that gRPC refused or broke off."""
    error = ErrorMessage(run_id or failure.metadata.get("run_id", ""), error_type, failure.message, failure.message)
    return events.frame(StopReason("error")) + events.error_frame(error) + events.DONE
