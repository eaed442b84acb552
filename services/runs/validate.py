"""Checks of requests about runs. Everything that is wrong with a request is said at once."""

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from common.errors import FieldViolation
from common.ids import Prefix
from common.pb.bridle.v1 import (
    approval_pb2,
    approval_service_pb2,
    run_pb2,
    run_service_pb2,
    stop_reason_pb2,
    tool_pb2,
)
from services.messages import validate as messages
from services.tools.validate import schema
from services.wire import checks
from services.wire.checks import Found, require
from services.wire.wellknown import is_known, to_seconds

_MAX_WAIT_SECONDS = 3600


def create(request: run_service_pb2.CreateRunRequest, field: str = "") -> None:
    """CreateRun, on its own or inside another request."""
    require(_create(request, field))


def _create(request: run_service_pb2.CreateRunRequest, at: str) -> Found:
    yield from checks.identifier(f"{at}agent_id", Prefix.AGENT, request.agent_id)
    if request.conversation_id:
        yield from checks.identifier(f"{at}conversation_id", Prefix.CONVERSATION, request.conversation_id)
    yield from messages.inputs(f"{at}messages", request.messages)
    yield from checks.text(f"{at}request_id", request.request_id, most=128)
    options = request.options
    if not 0 <= options.max_steps <= 1000:
        yield FieldViolation(f"{at}options.max_steps", "must be 1 to 1,000")
    if not is_known(run_service_pb2.RunOptions.OnBusy, options.on_busy):
        yield FieldViolation(f"{at}options.on_busy", "is not a known value")
    if not is_known(run_service_pb2.RunOptions.OnPendingApproval, options.on_pending_approval):
        yield FieldViolation(f"{at}options.on_pending_approval", "is not a known value")
    yield from client_tools(f"{at}options.client_tools", options.client_tools)
    if options.model:
        yield from checks.handle(f"{at}options.model", options.model)
    yield from checks.size_in_bytes(f"{at}options.system", options.system, 256 * 1024)
    yield from checks.json(f"{at}options.metadata", options.metadata, 16 * 1024)


def client_tools(field: str, tools: Iterable[tool_pb2.ClientTool]) -> Found:
    """Tools that the caller runs."""
    tools = list(tools)
    yield from checks.count(field, tools, 128)
    yield from checks.no_duplicates(field, [tool.name for tool in tools])
    for number, tool in enumerate(tools):
        yield from checks.tool_name(f"{field}[{number}].name", tool.name)
        yield from checks.text(f"{field}[{number}].description", tool.description, most=10_000)
        yield from schema(f"{field}[{number}].parameters", tool.parameters)


def step_id(text: str) -> None:
    """A request that names a step."""
    require(checks.identifier("step_id", Prefix.STEP, text))


def approval_id(text: str) -> None:
    """A request that names an approval."""
    require(checks.identifier("approval_id", Prefix.APPROVAL, text))


def run_id(text: str) -> None:
    """A request that names a run."""
    require(checks.identifier("run_id", Prefix.RUN, text))


def cancel(request: run_service_pb2.CancelRunRequest) -> float:
    """CancelRun; how long to wait."""
    require(_cancel(request))
    return to_seconds(request.wait)


def _cancel(request: run_service_pb2.CancelRunRequest) -> Found:
    yield from checks.identifier("run_id", Prefix.RUN, request.run_id)
    yield from checks.size_in_bytes("reason", request.reason, 4096)
    yield from _wait(request.wait)


def _wait(wait: Duration) -> Found:
    if not 0 <= to_seconds(wait) <= _MAX_WAIT_SECONDS:
        yield FieldViolation("wait", f"must be 0 to {_MAX_WAIT_SECONDS:,} seconds")


def cancel_several(request: run_service_pb2.CancelRunsRequest) -> float:
    """CancelRuns; how long to wait."""
    require(_cancel_several(request))
    return to_seconds(request.wait)


def _cancel_several(request: run_service_pb2.CancelRunsRequest) -> Found:
    if bool(request.run_ids) == bool(request.agent_id):
        yield FieldViolation("run_ids", "either run_ids or agent_id must be given")
    yield from checks.count("run_ids", request.run_ids, 1000)
    for number, each in enumerate(request.run_ids):
        yield from checks.identifier(f"run_ids[{number}]", Prefix.RUN, each)
    if request.agent_id:
        yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
    yield from checks.size_in_bytes("reason", request.reason, 4096)
    yield from _wait(request.wait)


def stream(request: run_service_pb2.StreamRunRequest) -> None:
    """StreamRun."""
    require(_stream(request))


def _stream(request: run_service_pb2.StreamRunRequest) -> Found:
    yield from checks.identifier("run_id", Prefix.RUN, request.run_id)
    if request.after_seq < 0:
        yield FieldViolation("after_seq", "must not be negative")


def listing(request: run_service_pb2.ListRunsRequest) -> None:
    """ListRuns."""
    require(_listing(request))


def _listing(request: run_service_pb2.ListRunsRequest) -> Found:
    yield from checks.count("agent_ids", request.agent_ids, 100)
    for number, each in enumerate(request.agent_ids):
        yield from checks.identifier(f"agent_ids[{number}]", Prefix.AGENT, each)
    if request.conversation_id:
        yield from checks.identifier("conversation_id", Prefix.CONVERSATION, request.conversation_id)
    for number, state in enumerate(request.states):
        if not state or not is_known(run_pb2.Run.State, state):
            yield FieldViolation(f"states[{number}]", "is not a known value")
    for number, reason in enumerate(request.stop_reasons):
        if not reason or not is_known(stop_reason_pb2.StopReason, reason):
            yield FieldViolation(f"stop_reasons[{number}]", "is not a known value")
    yield from order("order_by", request.order_by)


def order(field: str, text: str) -> Found:
    """The orders lists know."""
    if text not in ("", "create_time", "create_time desc"):
        yield FieldViolation(field, "must be 'create_time' or 'create_time desc'")


def steps(request: run_service_pb2.ListStepsRequest) -> None:
    """ListSteps."""
    require(_steps(request))


def _steps(request: run_service_pb2.ListStepsRequest) -> Found:
    if request.run_id:
        yield from checks.identifier("run_id", Prefix.RUN, request.run_id)
    if request.agent_id:
        yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)


def approvals(request: approval_service_pb2.ListApprovalsRequest) -> None:
    """ListApprovals."""
    require(_approvals(request))


def _approvals(request: approval_service_pb2.ListApprovalsRequest) -> Found:
    if request.agent_id:
        yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
    if request.run_id:
        yield from checks.identifier("run_id", Prefix.RUN, request.run_id)
    for number, state in enumerate(request.states):
        if not state or not is_known(approval_pb2.Approval.State, state):
            yield FieldViolation(f"states[{number}]", "is not a known value")


def watch(request: approval_service_pb2.WatchApprovalsRequest) -> None:
    """WatchApprovals."""
    if request.agent_id:
        require(checks.identifier("agent_id", Prefix.AGENT, request.agent_id))


def answer(request: approval_service_pb2.SubmitApprovalRequest) -> None:
    """SubmitApproval."""
    require(_answer(request))


def _answer(request: approval_service_pb2.SubmitApprovalRequest) -> Found:
    match request.WhichOneof("target"):
        case "approval_id":
            yield from checks.identifier("approval_id", Prefix.APPROVAL, request.approval_id)
        case "run_id":
            yield from checks.identifier("run_id", Prefix.RUN, request.run_id)
        case "agent_id":
            yield from checks.identifier("agent_id", Prefix.AGENT, request.agent_id)
        case _:
            yield FieldViolation("approval_id", "an approval, a run or an agent must be named")
    yield from messages.decisions("decisions", request.decisions)
    yield from messages.inputs("follow_up", request.follow_up, least=0)
    yield from client_tools("client_tools", request.client_tools)
    yield from checks.text("request_id", request.request_id, most=128)
