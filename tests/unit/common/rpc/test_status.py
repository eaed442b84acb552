"""common/rpc/status.py: whatever an error says, its status fits into trailers."""

import pytest
from google.rpc import error_details_pb2, status_pb2

from common.errors import BridleError, FieldViolation, InvalidArgument, LimitExceeded, NotFound
from common.rpc.status import to_status


def unpacked(error: BridleError) -> tuple[status_pb2.Status, error_details_pb2.ErrorInfo]:
    raw = dict(to_status(error).trailing_metadata)["grpc-status-details-bin"]
    assert isinstance(raw, bytes)
    status = status_pb2.Status.FromString(raw)
    info = error_details_pb2.ErrorInfo()
    assert status.details[0].Unpack(info)
    return status, info


@pytest.mark.parametrize(
    "error",
    [
        NotFound("agent", "x" * 100_000),
        NotFound("agent", "🐎" * 100_000),
        NotFound("agent", "\ud800 lone surrogate"),
        InvalidArgument([FieldViolation(f"field_{n}" * 50, "é" * 5000) for n in range(500)]),
    ],
    ids=["ascii", "emoji", "surrogate", "many fields"],
)
def test_a_status_is_bounded_and_keeps_its_reason(error: BridleError) -> None:
    status, info = unpacked(error)
    assert status.ByteSize() <= 3500
    assert len(status.message.encode()) <= 1003
    assert (status.code, info.reason, info.domain) == (error.code, error.reason, "bridle.dev")


def test_text_in_trailers_and_details_is_the_same() -> None:
    error = NotFound("agent", "agent-1")
    assert to_status(error).details == unpacked(error)[0].message == error.message


def test_retry_info_only_when_there_is_a_time() -> None:
    with_time, _ = unpacked(LimitExceeded("runs", 3, retry_after=1.25))
    without, _ = unpacked(LimitExceeded("runs", 3))
    retry = error_details_pb2.RetryInfo()
    assert with_time.details[1].Unpack(retry)
    assert (retry.retry_delay.seconds, retry.retry_delay.nanos) == (1, 250_000_000)
    assert len(without.details) == 1
