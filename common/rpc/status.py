"""BridleError -> google.rpc.Status with exactly one ErrorInfo (AIP-193)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf import any_pb2, duration_pb2
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

from common.errors import InvalidArgument, LimitExceeded

if TYPE_CHECKING:
    import grpc
    from google.protobuf.message import Message

    from common.errors import BridleError

ERROR_DOMAIN: Final = "bridle.dev"

# Trailers of more than 8 KiB are refused by common clients, which then see neither code nor reason.
# The text travels twice (percent-encoded and inside the base64 of the details), so stay well below.
_MAX_TEXT: Final = 1000
_MAX_VALUE: Final = 300
_MAX_VIOLATIONS: Final = 8
_MAX_STATUS: Final = 3500


def to_status(error: BridleError) -> grpc.Status:
    """Code, text and details of the error, cut to what fits into trailers."""
    message = _clip(error.message, _MAX_TEXT)
    info = error_details_pb2.ErrorInfo(
        reason=error.reason,
        domain=ERROR_DOMAIN,
        metadata={key: _clip(value, _MAX_VALUE) for key, value in error.metadata.items()},
    )
    status = _pack(error, message, [info, *_extra_details(error)])
    if status.ByteSize() > _MAX_STATUS:
        bare = error_details_pb2.ErrorInfo(reason=error.reason, domain=ERROR_DOMAIN)
        status = _pack(error, message, [bare])
    return rpc_status.to_status(status)


def _pack(error: BridleError, message: str, details: list[Message]) -> status_pb2.Status:
    status = status_pb2.Status(code=error.code, message=message)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def _extra_details(error: BridleError) -> list[Message]:
    if isinstance(error, InvalidArgument):
        return [_bad_request(error)]
    if isinstance(error, LimitExceeded) and error.retry_after is not None:
        delay = duration_pb2.Duration()
        delay.FromNanoseconds(round(error.retry_after * 1e9))
        return [error_details_pb2.RetryInfo(retry_delay=delay)]
    return []


def _bad_request(error: InvalidArgument) -> error_details_pb2.BadRequest:
    return error_details_pb2.BadRequest(
        field_violations=[
            error_details_pb2.BadRequest.FieldViolation(
                field=_clip(each.field, _MAX_VALUE), description=_clip(each.description, _MAX_VALUE)
            )
            for each in error.fields[:_MAX_VIOLATIONS]
        ]
    )


def _clip(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8. Lone surrogates would break the encoding of the trailer."""
    raw = text.encode(errors="replace")
    return raw.decode() if len(raw) <= limit else raw[:limit].decode(errors="ignore") + "…"
