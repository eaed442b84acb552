"""gRPC statuses as HTTP answers, in the words and shapes that clients of the wire expect.

Every body also has what gRPC said, so that nothing is lost on the way: `reason` and `metadata` of its ErrorInfo.
`x-should-retry: false` is sent where a repeat would be refused again, or would say the same thing to an agent twice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from msgspec import Struct

from common.errors import NoPendingApproval
from common.pb.bridle.v1 import stop_reason_pb2
from gateway.http.problems import DO_NOT_RETRY, Problem

if TYPE_CHECKING:
    from common.pb.bridle.v1 import run_pb2

_Code = grpc.StatusCode

_STATUS: Final = {
    _Code.INVALID_ARGUMENT: 400,
    _Code.OUT_OF_RANGE: 400,
    _Code.UNAUTHENTICATED: 401,
    _Code.PERMISSION_DENIED: 403,
    _Code.NOT_FOUND: 404,
    _Code.ALREADY_EXISTS: 409,
    _Code.FAILED_PRECONDITION: 409,
    _Code.ABORTED: 409,
    _Code.RESOURCE_EXHAUSTED: 429,
    _Code.CANCELLED: 503,
    _Code.UNAVAILABLE: 503,
    _Code.UNIMPLEMENTED: 501,
    _Code.DEADLINE_EXCEEDED: 504,
}
# Reasons that the wire knows by another status than their code's.
_STATUS_BY_REASON: Final = {
    "NO_PENDING_APPROVAL": 400,
    "APPROVAL_ALREADY_DECIDED": 400,
    "SECRET_KEY_MISSING": 400,
}
# Worth a repeat: the state that was in the way passes by itself.
_PASSES: Final = frozenset({"CONVERSATION_BUSY", "STORE_CONFLICT", "INTERNAL_CANCELLED"})
_RETRIED: Final = frozenset({408, 409, 429})

UNKNOWN_ERROR: Final = "An unknown error occurred"
UNAUTHORIZED: Final = "Unauthorized"


class RpcFailure(Struct, frozen=True):
    """What a failed call says."""

    code: grpc.StatusCode
    message: str
    reason: str = ""
    metadata: dict[str, str] = {}
    fields: tuple[tuple[str, str], ...] = ()
    retry_after: float | None = None


def read(error: grpc.aio.AioRpcError) -> RpcFailure:
    """The status with its details. One that did not come from our servers has none."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type]  # reads only what both have
    info, bad, retry = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest(), error_details_pb2.RetryInfo()
    delay: float | None = None
    for detail in status.details if status is not None else ():
        if detail.Unpack(retry):
            delay = retry.retry_delay.ToMilliseconds() / 1000
        elif not detail.Unpack(info):
            detail.Unpack(bad)
    return RpcFailure(
        code=error.code(),
        message=error.details() or "",
        reason=info.reason,
        metadata=dict(info.metadata),
        fields=tuple((each.field, each.description) for each in bad.field_violations),
        retry_after=delay,
    )


def problem(failure: RpcFailure, pending_request_id: str = "") -> Problem:
    """The HTTP answer of a failed call."""
    status = _STATUS_BY_REASON.get(failure.reason) or _STATUS.get(failure.code, 500)
    if status == 429 and not failure.reason:
        # gRPC itself, not our servers: the message is larger than it may be.
        status = 413
    body = {"detail": _detail(failure, status, pending_request_id), **_said(failure)}
    if failure.reason == "CONVERSATION_BUSY":
        body["run_id"] = failure.metadata.get("run_id", "")
    return Problem(status, body, _headers(failure, status))


def _detail(failure: RpcFailure, status: int, pending_request_id: str) -> Any:
    if failure.reason == "PENDING_APPROVAL":
        return {"code": "PENDING_APPROVAL", "message": failure.message, "pending_request_id": pending_request_id}
    if failure.reason == "APPROVAL_ALREADY_DECIDED":
        return f"{NoPendingApproval().message} {failure.message}"
    if status == 401:
        return UNAUTHORIZED
    if status == 500:
        return UNKNOWN_ERROR
    return failure.message or failure.code.name


def _said(failure: RpcFailure) -> dict[str, Any]:
    said: dict[str, Any] = {"reason": failure.reason, "metadata": failure.metadata} if failure.reason else {}
    if failure.fields:
        said["fields"] = [{"field": field, "description": text} for field, text in failure.fields]
    return said


def _headers(failure: RpcFailure, status: int) -> dict[str, str]:
    headers: dict[str, str] = {}
    if failure.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(failure.retry_after)))
    elif failure.reason == "STORE_CONFLICT" or status == 503:
        headers["retry-after"] = "1"
    # A deadline says nothing about whether the call took effect, and what is not implemented stays so.
    hopeless = status in (501, 504) or (status in _RETRIED and failure.reason not in _PASSES and not headers)
    return headers | DO_NOT_RETRY if hopeless else headers


# How the failure of a run is told to a client that waited for its answer.
_LLM_STATUS: Final = {
    "llm_timeout": 504,
    "llm_rate_limit": 429,
    "llm_authentication": 401,
    "llm_insufficient_credits": 402,
    "llm_bad_request": 400,
}
# The model's answer came and is kept; only the way it ended is a failure.
_PLAIN_STOPS: Final = frozenset(
    {
        stop_reason_pb2.STOP_REASON_MAX_TOKENS_EXCEEDED,
        stop_reason_pb2.STOP_REASON_NO_TOOL_CALL,
        stop_reason_pb2.STOP_REASON_INVALID_TOOL_CALL,
        stop_reason_pb2.STOP_REASON_REFUSAL,
    }
)


def run_problem(run: run_pb2.Run) -> Problem | None:
    """The HTTP answer of a run that failed, or None if the wire has it as a plain stop reason.

    Never to be retried by the SDK: the run has kept what was said, and a repeat would say it twice.
    """
    error = run.error
    if not error.type or run.stop_reason in _PLAIN_STOPS:
        return None
    if error.type.startswith("llm_"):
        told = {"type": error.type, "message": error.message, "detail": error.detail}
        return Problem(_LLM_STATUS.get(error.type, 500), {"error": told, "run_id": run.id}, DO_NOT_RETRY)
    status = 400 if error.type.startswith("context_window") else 500
    detail = f"{error.message} {error.detail}".strip()
    return Problem(status, {"detail": detail, "type": error.type, "run_id": run.id}, DO_NOT_RETRY)
