"""The gateway's errors in OpenAI's shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET

from gateway.chat.model import ChatError, ErrorDetail
from gateway.http.problems import Invalid, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

_TYPES: Final = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    429: "rate_limit_error",
}
# The wire's word for a body of the wrong form; OpenAI's is 400.
_UNPROCESSABLE: Final = 422


def refusal(problem: Problem) -> Problem:
    """The same error as the `openai` SDK expects it."""
    status = 400 if problem.status == _UNPROCESSABLE else problem.status
    return Problem(status, msgspec.to_builtins(told(problem)), problem.headers)


def told(problem: Problem) -> ChatError:
    """What the error says."""
    body = problem.body
    model_failure: Mapping[str, Any] = body.get("error", {})
    return ChatError(
        ErrorDetail(
            message=_message(problem, model_failure),
            type=_type(problem.status),
            param=_param(problem),
            code=model_failure.get("type") or body.get("reason") or body.get("type"),
            metadata=body.get("metadata", UNSET),
            run_id=body.get("run_id", UNSET),
        )
    )


def model_not_found(model: str) -> Problem:
    """404 for a model that is no agent."""
    text = f"The model {model[:100]!r} does not exist: the model of a chat completion is the id of an agent."
    return Problem(404, {"detail": text, "reason": "model_not_found"})


def _type(status: int) -> str:
    return _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")


def _message(problem: Problem, model_failure: Mapping[str, Any]) -> str:
    if isinstance(problem, Invalid):
        return f"{problem.message} ({_param(problem)})"
    if model_failure:
        return f"{model_failure['message']} {model_failure['detail']}".strip()
    detail = problem.body.get("detail", "")
    return str(detail["message"] if isinstance(detail, dict) else detail)


def _param(problem: Problem) -> str | None:
    """The place that is wrong: `messages[0].content`."""
    if isinstance(problem, Invalid):
        place = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in problem.loc[1:])
        return place.removeprefix(".") or str(problem.loc[0])
    fields = problem.body.get("fields")
    return str(fields[0]["field"]) if fields else None
