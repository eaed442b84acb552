"""Runs, steps, approvals and events between protobuf and the domain."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from common.pb.bridle.v1 import (
    approval_pb2,
    approval_service_pb2,
    run_event_pb2,
    run_pb2,
    run_service_pb2,
    stop_reason_pb2,
    tool_pb2,
    usage_pb2,
)
from services.messages.convert import (
    call_to_pb,
    decision_to_pb,
    input_from_pb,
    message_to_pb,
    return_to_pb,
    timestamp,
)
from services.runs import events
from services.runs.model import (
    Approval,
    ApprovalState,
    Callback,
    CancelReceipt,
    ClientTool,
    OnBusy,
    OnPendingApproval,
    Run,
    RunError,
    RunOptions,
    RunRequest,
    RunState,
    Step,
    StepStatus,
    StopReason,
    Usage,
)
from services.runs.store.approvals import ApprovalFilter
from services.runs.store.queries import RunFilter
from services.wire.wellknown import enum_number, enum_text, to_dict, to_struct

_STATES = {state: enum_number(run_pb2.Run.State, "STATE_", state) for state in RunState}
_REASONS = {reason: enum_number(stop_reason_pb2.StopReason, "STOP_REASON_", reason) for reason in StopReason}
_STATUSES = {status: enum_number(run_pb2.Step.Status, "STATUS_", status) for status in StepStatus}
_DEFAULT_STEPS = 50


def request_from_pb(request: run_service_pb2.CreateRunRequest) -> RunRequest:
    """What a caller asks for, checked before."""
    options = request.options
    return RunRequest(
        messages=tuple(input_from_pb(message) for message in request.messages),
        options=RunOptions(
            max_steps=options.max_steps or _DEFAULT_STEPS,
            on_busy=OnBusy(enum_text(run_service_pb2.RunOptions.OnBusy, "ON_BUSY_", options.on_busy))
            if options.on_busy
            else OnBusy.ENQUEUE,
            on_pending_approval=_on_pending(options),
            client_tools=client_tools_from_pb(options.client_tools),
            background=options.background,
            model=options.model,
            system=options.system,
            metadata=to_dict(options.metadata),
            callback_url=options.callback_url,
        ),
    )


def _on_pending(options: run_service_pb2.RunOptions) -> OnPendingApproval:
    if not options.on_pending_approval:
        return OnPendingApproval.REFUSE
    kind = run_service_pb2.RunOptions.OnPendingApproval
    return OnPendingApproval(enum_text(kind, "ON_PENDING_APPROVAL_", options.on_pending_approval))


def client_tools_from_pb(tools: Iterable[tool_pb2.ClientTool]) -> tuple[ClientTool, ...]:
    """Tools that the caller runs, checked before."""
    return tuple(ClientTool(tool.name, tool.description, to_dict(tool.parameters)) for tool in tools)


def filter_from_pb(request: run_service_pb2.ListRunsRequest, organization_id: str) -> RunFilter:
    """Which runs are meant, checked before."""
    return RunFilter(
        organization_id=organization_id,
        agent_ids=tuple(request.agent_ids),
        conversation_id=request.conversation_id,
        states=tuple(enum_text(run_pb2.Run.State, "STATE_", state) for state in request.states),
        stop_reasons=tuple(
            enum_text(stop_reason_pb2.StopReason, "STOP_REASON_", reason) for reason in request.stop_reasons
        ),
        background=request.background if request.HasField("background") else None,
        created_after=_moment(request.created_after, request.HasField("created_after")),
        created_before=_moment(request.created_before, request.HasField("created_before")),
    )


def _moment(stamp: Timestamp, given: bool) -> datetime | None:
    return stamp.ToDatetime(tzinfo=UTC) if given else None


def approval_filter_from_pb(request: approval_service_pb2.ListApprovalsRequest, organization_id: str) -> ApprovalFilter:
    """Which approvals are meant, checked before."""
    states = tuple(enum_text(approval_pb2.Approval.State, "STATE_", state) for state in request.states)
    return ApprovalFilter(
        organization_id=organization_id,
        agent_id=request.agent_id,
        run_id=request.run_id,
        states=states or (ApprovalState.PENDING,),
    )


def run_to_pb(run: Run) -> run_pb2.Run:
    """A run."""
    outcome = run.outcome
    out = run_pb2.Run(
        id=run.id,
        agent_id=run.agent_id,
        conversation_id=run.conversation_id,
        state=_STATES[run.state],
        usage=_usage_to_pb(outcome.usage),
        step_count=outcome.step_count,
        tools_used=outcome.tools_used,
        approval_id=outcome.approval_id,
        last_seq=run.last_seq,
        background=run.background,
        create_time=timestamp(run.created_at),
    )
    if run.stop_reason is not None:
        out.stop_reason = _REASONS[run.stop_reason]
    if outcome.error is not None:
        out.error.CopyFrom(_error_to_pb(outcome.error))
    if outcome.cancel is not None:
        out.cancel.CopyFrom(_receipt_to_pb(outcome.cancel))
    elif run.cancel_requested_at is not None:
        out.cancel.request_time.CopyFrom(timestamp(run.cancel_requested_at))
    if run.request.options.metadata:
        out.metadata.CopyFrom(to_struct(run.request.options.metadata))
    if run.request.options.callback_url:
        out.callback.CopyFrom(_callback_to_pb(run.request.options.callback_url, run.callback))
    if outcome.first_token_us is not None:
        out.time_to_first_token.CopyFrom(_microseconds(outcome.first_token_us))
    _times_to_pb(run, out)
    return out


def _times_to_pb(run: Run, out: run_pb2.Run) -> None:
    if run.started_at is not None:
        out.start_time.CopyFrom(timestamp(run.started_at))
    if run.stopped_at is not None:
        out.stop_time.CopyFrom(timestamp(run.stopped_at))
    if run.started_at is not None and run.stopped_at is not None:
        out.duration.FromTimedelta(run.stopped_at - run.started_at)


def _callback_to_pb(url: str, callback: Callback | None) -> run_pb2.Callback:
    out = run_pb2.Callback(url=url)
    if callback is not None:
        out.attempts, out.error, out.done = callback.attempts, callback.error, callback.done
        out.status_code = callback.status_code or 0
        out.attempt_time.CopyFrom(timestamp(callback.sent_at))
    return out


def _receipt_to_pb(receipt: CancelReceipt) -> run_pb2.CancelReceipt:
    out = run_pb2.CancelReceipt(
        request_time=timestamp(receipt.requested_at), requested_by=receipt.requested_by, reason=receipt.reason
    )
    if receipt.phase is not None:
        out.phase = enum_number(run_pb2.CancelReceipt.Phase, "PHASE_", receipt.phase)
    for name, moment in (
        ("seen_time", receipt.seen_at),
        ("model_closed_time", receipt.model_closed_at),
        ("tools_stopped_time", receipt.tools_stopped_at),
        ("terminal_time", receipt.terminal_at),
    ):
        if moment is not None:
            getattr(out, name).CopyFrom(timestamp(moment))
    return out


def step_to_pb(step: Step) -> run_pb2.Step:
    """A step."""
    detail = step.detail
    out = run_pb2.Step(
        id=step.id,
        run_id=step.run_id,
        agent_id=step.agent_id,
        number=step.no,
        status=_STATUSES[step.status],
        model=detail.model,
        usage=_usage_to_pb(detail.usage),
        tools_used=detail.tools_used,
        create_time=timestamp(step.created_at),
    )
    if detail.stop_reason is not None:
        out.stop_reason = _REASONS[detail.stop_reason]
    if detail.error is not None:
        out.error.CopyFrom(_error_to_pb(detail.error))
    for name, span in (
        ("time_to_first_token", detail.first_token_us),
        ("model_duration", detail.model_us),
        ("tool_duration", detail.tool_us),
    ):
        if span is not None:
            getattr(out, name).CopyFrom(_microseconds(span))
    if detail.ended_at is not None:
        out.end_time.CopyFrom(timestamp(detail.ended_at))
        out.duration.FromTimedelta(detail.ended_at - step.created_at)
    return out


def approval_to_pb(approval: Approval) -> approval_pb2.Approval:
    """An approval."""
    out = approval_pb2.Approval(
        id=approval.id,
        run_id=approval.run_id,
        agent_id=approval.agent_id,
        conversation_id=approval.conversation_id,
        step_id=approval.step_id,
        message_id=approval.detail.message_id,
        state=enum_number(approval_pb2.Approval.State, "STATE_", approval.state),
        calls=[
            approval_pb2.ApprovalCall(
                call=call_to_pb(call.call), arguments_sha256=call.sha256, client_side=call.client_side
            )
            for call in approval.detail.calls
        ],
        decisions=[decision_to_pb(decision) for decision in approval.detail.decisions],
        decided_by=approval.decided_by,
        create_time=timestamp(approval.created_at),
    )
    if approval.decided_at is not None:
        out.decide_time.CopyFrom(timestamp(approval.decided_at))
    if approval.expires_at is not None:
        out.expire_time.CopyFrom(timestamp(approval.expires_at))
    return out


def entry_to_pb(entry: events.Entry) -> run_event_pb2.RunEvent:
    """An entry of a run's log."""
    out = run_event_pb2.RunEvent(seq=entry.seq, time=timestamp(entry.time))
    _EVENTS[type(entry.event)](out, entry.event)
    return out


def _text(out: run_event_pb2.RunEvent, event: events.TextDelta) -> None:
    delta = out.text_delta
    delta.message_id, delta.part, delta.text = event.message_id, event.part, event.text


def _reasoning(out: run_event_pb2.RunEvent, event: events.ReasoningDelta) -> None:
    delta = out.reasoning_delta
    delta.message_id, delta.part, delta.text = event.message_id, event.part, event.text


def _call(out: run_event_pb2.RunEvent, event: events.ToolCallDelta) -> None:
    delta = out.tool_call_delta
    delta.message_id, delta.part, delta.tool_call_id = event.message_id, event.part, event.call_id
    delta.name, delta.arguments = event.name, event.arguments


def _run_started(out: run_event_pb2.RunEvent, event: events.RunStarted) -> None:
    out.run_started.SetInParent()


def _step_started(out: run_event_pb2.RunEvent, event: events.StepStarted) -> None:
    started = out.step_started
    started.step_id, started.number, started.message_id = event.step_id, event.number, event.message_id


def _message_added(out: run_event_pb2.RunEvent, event: events.MessageAdded) -> None:
    out.message_added.message.CopyFrom(message_to_pb(event.message))


def _tool_started(out: run_event_pb2.RunEvent, event: events.ToolStarted) -> None:
    out.tool_started.tool_call_id, out.tool_started.name = event.call_id, event.name


def _tool_progress(out: run_event_pb2.RunEvent, event: events.ToolProgress) -> None:
    out.tool_progress.tool_call_id, out.tool_progress.text = event.call_id, event.text


def _tool_finished(out: run_event_pb2.RunEvent, event: events.ToolFinished) -> None:
    out.tool_finished.result.CopyFrom(return_to_pb(event.result))


def _approval_requested(out: run_event_pb2.RunEvent, event: events.ApprovalRequested) -> None:
    out.approval_requested.approval.CopyFrom(approval_to_pb(event.approval))


def _approval_decided(out: run_event_pb2.RunEvent, event: events.ApprovalDecided) -> None:
    out.approval_decided.approval.CopyFrom(approval_to_pb(event.approval))


def _context_compacted(out: run_event_pb2.RunEvent, event: events.ContextCompacted) -> None:
    compacted = out.context_compacted
    compacted.message_id = event.message_id
    compacted.messages_before, compacted.messages_after = event.messages_before, event.messages_after


def _step_finished(out: run_event_pb2.RunEvent, event: events.StepFinished) -> None:
    out.step_finished.step.CopyFrom(step_to_pb(event.step))


def _restarted(out: run_event_pb2.RunEvent, event: events.Restarted) -> None:
    out.restarted.void_from_seq, out.restarted.void_to_seq = event.void_from_seq, event.void_to_seq


def _truncated(out: run_event_pb2.RunEvent, event: events.Truncated) -> None:
    out.truncated.through_seq = event.through_seq


def _run_stopped(out: run_event_pb2.RunEvent, event: events.RunStopped) -> None:
    out.run_stopped.run.CopyFrom(run_to_pb(event.run))


_EVENTS: dict[type[events.Event], Callable[[run_event_pb2.RunEvent, Any], None]] = {
    events.TextDelta: _text,
    events.ReasoningDelta: _reasoning,
    events.ToolCallDelta: _call,
    events.RunStarted: _run_started,
    events.StepStarted: _step_started,
    events.MessageAdded: _message_added,
    events.ToolStarted: _tool_started,
    events.ToolProgress: _tool_progress,
    events.ToolFinished: _tool_finished,
    events.ApprovalRequested: _approval_requested,
    events.ApprovalDecided: _approval_decided,
    events.ContextCompacted: _context_compacted,
    events.StepFinished: _step_finished,
    events.Restarted: _restarted,
    events.Truncated: _truncated,
    events.RunStopped: _run_stopped,
}


def _usage_to_pb(usage: Usage) -> usage_pb2.Usage:
    return usage_pb2.Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_input_tokens=usage.cached_input_tokens,
        cache_write_tokens=usage.cache_write_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        estimated=usage.estimated,
    )


def _error_to_pb(error: RunError) -> run_pb2.RunError:
    return run_pb2.RunError(type=error.type, message=error.message, detail=error.detail)


def _microseconds(span: int) -> Duration:
    duration = Duration()
    duration.FromTimedelta(timedelta(microseconds=span))
    return duration
