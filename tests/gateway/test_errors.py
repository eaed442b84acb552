"""The table of errors (WIRE 4): gRPC's status in, the wire's answer out."""

import grpc
import grpc.aio
import pytest

from common import errors as ours
from common.pb.bridle.v1 import run_pb2, stop_reason_pb2
from common.rpc.inprocess import InProcessChannel
from common.rpc.status import to_status
from gateway import errors

RETRY = {"x-should-retry": "false"}
TABLE: list[tuple[ours.BridleError, int, dict[str, str]]] = [
    (ours.InvalidArgument.of("name", "is too long"), 400, {}),
    (ours.ApprovalMismatch(["a"], ["b"]), 400, {}),
    (ours.NoPendingApproval(), 400, {}),
    (ours.ApprovalAlreadyDecided("approval-1", "decided"), 400, {}),
    (ours.SecretKeyMissing(), 400, {}),
    (ours.CursorOutOfRange(9, 1, 3), 400, {}),
    (ours.Unauthenticated(), 401, {}),
    (ours.PermissionDenied("read"), 403, {}),
    (ours.NotFound("agent", "agent-1"), 404, {}),
    (ours.AlreadyExists("tool", "tool-1"), 409, RETRY),
    (ours.RequestIdReused("mine"), 409, RETRY),
    (ours.PendingApproval("approval-1", "run-1"), 409, RETRY),
    (ours.IllegalTransition("run", "run-1", "running", "delete"), 409, RETRY),
    (ours.ResourceInUse("tool", "tool-1", "an agent"), 409, RETRY),
    (ours.ToolServerFailed("maps", "is down"), 409, RETRY),
    (ours.EtagMismatch("agent", "agent-1", "x"), 409, RETRY),
    (ours.ConversationBusy("run-1"), 409, {}),
    (ours.StoreConflict(), 409, {"retry-after": "1"}),
    (ours.InternalCancelled(), 409, {}),
    (ours.LimitExceeded("streams", 5, retry_after=1.5), 429, {"retry-after": "2"}),
    (ours.LimitExceeded("streams", 5), 429, RETRY),
    (ours.NotImplementedYet("/x/y"), 501, RETRY),
    (ours.Draining(), 503, {"retry-after": "1"}),
    (ours.StoreUnavailable(), 503, {"retry-after": "1"}),
    (ours.ModelCallFailed("llm_timeout", "The model did not answer.", ""), 503, {"retry-after": "1"}),
    (ours.DeadlineExceeded(3), 504, RETRY),
    (ours.Internal("request-1"), 500, {}),
]


def raised(error: ours.BridleError) -> errors.RpcFailure:
    status = to_status(error)
    failed = grpc.aio.AioRpcError(
        status.code,
        grpc.aio.Metadata(),
        grpc.aio.Metadata(*status.trailing_metadata),
        status.details,
    )
    return errors.read(failed)


@pytest.mark.parametrize(("error", "status", "headers"), TABLE, ids=[type(row[0]).__name__ for row in TABLE])
def test_every_error_has_its_answer(error: ours.BridleError, status: int, headers: dict[str, str]) -> None:
    problem = errors.problem(raised(error))
    assert problem.status == status
    assert dict(problem.headers) == headers
    assert problem.body["reason"] == error.reason
    assert problem.body["metadata"] == error.metadata


def test_the_table_is_whole() -> None:
    leaves = {cls for cls in vars(ours).values() if isinstance(cls, type) and issubclass(cls, ours.BridleError)}
    concrete = {cls for cls in leaves if hasattr(cls, "reason")}
    assert concrete - {type(error) for error, *_ in TABLE} <= {ours.SecretKeyWrong}


def test_texts_that_clients_match() -> None:
    pending = errors.problem(raised(ours.PendingApproval("approval-1", "run-1")), "message-1").body
    assert pending["detail"]["code"] == "PENDING_APPROVAL"
    assert pending["detail"]["pending_request_id"] == "message-1"
    busy = errors.problem(raised(ours.ConversationBusy("run-1"))).body
    assert busy["run_id"] == "run-1"
    assert "(run_id=run-1) is currently being processed" in busy["detail"]
    assert errors.problem(raised(ours.Unauthenticated())).body["detail"] == "Unauthorized"
    assert errors.problem(raised(ours.Internal("request-1"))).body["detail"] == "An unknown error occurred"
    named = errors.problem(raised(ours.InvalidArgument.of("name", "is too long"))).body
    assert named["fields"] == [{"field": "name", "description": "is too long"}]


def test_a_status_without_details_is_told_too() -> None:
    bare = grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "gone")
    problem = errors.problem(errors.read(bare))
    assert (problem.status, problem.body) == (503, {"detail": "gone"})
    large = errors.RpcFailure(grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max")
    assert errors.problem(large).status == 413


@pytest.mark.parametrize(
    ("kind", "reason", "status"),
    [
        ("llm_timeout", stop_reason_pb2.STOP_REASON_LLM_API_ERROR, 504),
        ("llm_insufficient_credits", stop_reason_pb2.STOP_REASON_INSUFFICIENT_CREDITS, 402),
        ("llm_empty_response", stop_reason_pb2.STOP_REASON_INVALID_LLM_RESPONSE, 500),
        ("context_window_exceeded", stop_reason_pb2.STOP_REASON_LLM_API_ERROR, 400),
        ("internal_error", stop_reason_pb2.STOP_REASON_ERROR, 500),
    ],
)
def test_a_failed_run_is_an_error(kind: str, reason: stop_reason_pb2.StopReason.ValueType, status: int) -> None:
    run = run_pb2.Run(id="run-1", stop_reason=reason, error=run_pb2.RunError(type=kind, message="no", detail="x"))
    problem = errors.run_problem(run)
    assert problem is not None
    assert problem.status == status
    assert dict(problem.headers) == RETRY
    assert problem.body["run_id"] == "run-1"


def test_a_cut_answer_is_no_error() -> None:
    reason = stop_reason_pb2.STOP_REASON_MAX_TOKENS_EXCEEDED
    assert errors.run_problem(run_pb2.Run(stop_reason=reason, error=run_pb2.RunError(type="llm_error"))) is None
    assert errors.run_problem(run_pb2.Run(stop_reason=stop_reason_pb2.STOP_REASON_END_TURN)) is None


def test_a_method_that_no_service_has_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        InProcessChannel(()).unary_unary("/bridle.v1.RunService/Nothing")
