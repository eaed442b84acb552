"""Errors on the HTTP side: what an endpoint raises when a request cannot be answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The SDKs repeat 408, 409, 429 and every 5xx twice unless they are told not to.
DO_NOT_RETRY: Final = {"x-should-retry": "false"}


class Problem(Exception):
    """An answer that is not a success: status, JSON body, headers."""

    def __init__(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, body)
        self.status = status
        self.body = body
        self.headers: Mapping[str, str] = headers or {}


class Invalid(Problem):
    """422 as the wire has it: `detail` is the text of a list of errors, each with the place it is about."""

    def __init__(self, error: Mapping[str, Any], more: Mapping[str, Any] | None = None) -> None:
        super().__init__(422, {"trace_id": "", "detail": str([error]), **(more or {})})
        self.loc: tuple[str | int, ...] = error["loc"]
        self.message: str = error["msg"]


def bad_request(detail: str) -> Problem:
    """400: the request makes no sense."""
    return Problem(400, {"detail": detail})


def not_found(detail: str) -> Problem:
    """404."""
    return Problem(404, {"detail": detail})


def conflict(detail: str) -> Problem:
    """409 that will not change by itself."""
    return Problem(409, {"detail": detail}, DO_NOT_RETRY)


def invalid(loc: Sequence[str | int], message: str, kind: str = "value_error") -> Invalid:
    """422 for a part of the request."""
    return Invalid({"type": kind, "loc": tuple(loc), "msg": message})


def invalid_id(name: str, prefix: str, value: str) -> Invalid:
    """422 for a path parameter that is no id of its kind."""
    found = {
        "type": "string_pattern_mismatch",
        "loc": ("path", name),
        "msg": f"String should match pattern '{prefix}-{{uuid4}}'",
        "input": value[:200],
    }
    return Invalid(found, {"examples": [f"{prefix}-123e4567-e89b-42d3-8456-426614174000"]})
