"""From what a provider says when it fails to our ModelError, with the provider's own words as the detail."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec
from msgspec import Struct

from services.models.errors import ModelError, ModelErrorType

_MOST_DETAIL = 2000
# What is shorter is a placeholder, and may be a word.
_LEAST_SECRET = 8

# Each vendor has its own words for "that was too long". Compatible servers borrow or invent them.
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|model_context_window_exceeded|request_too_large"
    r"|maximum context length|maximum model length|context (window|length|limit|size)|prompt is too long"
    r"|input is too long|exceeds? the maximum number of tokens|too many (input )?tokens|context overflow"
    r"|reduce the length of the (messages|prompt|input)",
    re.IGNORECASE,
)
_BROKE = re.compile(
    r"insufficient_quota|insufficient_credits|billing|credit balance|exceeded your current quota|payment required",
    re.IGNORECASE,
)
# A single request above the limit per minute: waiting does not make it smaller.
_NEVER_FITS = re.compile(r"request too large", re.IGNORECASE)

# What the types and codes of error events inside a stream mean, as the status they would have had.
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

_MESSAGES = {
    ModelErrorType.TIMEOUT: "The model provider ran out of time.",
    ModelErrorType.RATE_LIMIT: "The model provider is limiting the rate of requests.",
    ModelErrorType.AUTHENTICATION: "The model provider refused the credentials.",
    ModelErrorType.BAD_REQUEST: "The model provider refused the request.",
    ModelErrorType.INSUFFICIENT_CREDITS: "The account with the model provider has no credit left.",
    ModelErrorType.ERROR: "The model provider failed.",
    ModelErrorType.CONTEXT_WINDOW_EXCEEDED: "The conversation does not fit into the model's context window.",
}


class Complaint(Struct, frozen=True):
    """What the provider said. Status 0: it came inside a stream that had begun well."""

    status: int = 0
    type: str = ""
    code: str = ""
    message: str = ""


def complaint(body: bytes, status: int = 0) -> Complaint:
    """Read the body of an error, in any vendor's shape."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError):
        return Complaint(status, message=body.decode(errors="replace").strip())
    fields: Any = decoded
    if isinstance(decoded, dict) and decoded.get("error"):
        fields = decoded["error"]
    if not isinstance(fields, dict):
        return Complaint(status, message=str(fields))
    kind, code = str(fields.get("type") or ""), str(fields.get("code") or "")
    message = fields.get("message") or fields.get("detail") or body.decode(errors="replace")
    if not status:
        status = int(code) if code.isdecimal() else _STATUS_OF_TYPE.get(code) or _STATUS_OF_TYPE.get(kind) or 0
    return Complaint(status, "" if kind == "error" else kind, code, str(message))


def refusal(said: Complaint, headers: Mapping[str, str]) -> ModelError:
    """The error of a call that the provider refused or gave up."""
    kind = _kind(said)
    again = said.status in (0, 408, 409, 429) or said.status >= 500
    never = kind in (ModelErrorType.INSUFFICIENT_CREDITS, ModelErrorType.CONTEXT_WINDOW_EXCEEDED)
    if never or headers.get("x-should-retry") == "false" or _NEVER_FITS.search(said.message):
        again = False
    return ModelError(
        kind,
        _MESSAGES[kind],
        detail=_detail(said, headers),
        retryable=again,
        retry_after=_retry_after(headers) if again else None,
    )


def broken(message: str, detail: str = "") -> ModelError:
    """The connection, or what came over it, was not what it should have been."""
    return ModelError(ModelErrorType.ERROR, message, detail, retryable=True)


def timed_out(message: str, detail: str = "") -> ModelError:
    """The network ran out of time before the provider could be reached."""
    return ModelError(ModelErrorType.TIMEOUT, message, detail, retryable=True)


def quotable(detail: str, secret: str) -> str:
    """What may be stored and shown of a detail: a proxy may repeat the key it did not like."""
    return (detail.replace(secret, "***") if len(secret) >= _LEAST_SECRET else detail)[:_MOST_DETAIL]


def _kind(said: Complaint) -> ModelErrorType:
    words = f"{said.type} {said.code} {said.message}"
    if said.status in (0, 400, 402, 403, 429) and _BROKE.search(words):
        return ModelErrorType.INSUFFICIENT_CREDITS
    if said.status == 413 and said.code != "rate_limit_exceeded":
        return ModelErrorType.CONTEXT_WINDOW_EXCEEDED
    if said.status in (0, 400, 422, 500) and _OVERFLOW.search(words):
        return ModelErrorType.CONTEXT_WINDOW_EXCEEDED
    return _kind_of_status(said.status)


def _kind_of_status(status: int) -> ModelErrorType:
    match status:
        case 401 | 403:
            return ModelErrorType.AUTHENTICATION
        case 402:
            return ModelErrorType.INSUFFICIENT_CREDITS
        case 413 | 429:
            return ModelErrorType.RATE_LIMIT
        case 408 | 504:
            return ModelErrorType.TIMEOUT
        case _ if 400 <= status < 500 and status != 409:
            return ModelErrorType.BAD_REQUEST
        case _:
            return ModelErrorType.ERROR


def _detail(said: Complaint, headers: Mapping[str, str]) -> str:
    names = [str(said.status) if said.status else "", said.type, said.code if said.code != str(said.status) else ""]
    request_id = headers.get("x-request-id") or headers.get("request-id") or ""
    number = f" (request {request_id})" if request_id else ""
    return (" ".join(name for name in names if name) + number + f": {said.message}").removeprefix(": ")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    try:
        at = parsedate_to_datetime(headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return max(0.0, ((at if at.tzinfo else at.replace(tzinfo=UTC)) - datetime.now(UTC)).total_seconds())
