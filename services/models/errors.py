"""What can go wrong with a model call. One class: the type is data, because it is stored and shown as it is.

ModelError
    llm_timeout, llm_rate_limit, llm_authentication, llm_bad_request, llm_insufficient_credits, llm_empty_response,
    llm_error, context_window_exceeded, context_window_overflow_in_system_prompt
"""

from enum import StrEnum

from services.runs.model import RunError, StopReason


class ModelErrorType(StrEnum):
    """The kinds of failure, with the wire's names."""

    TIMEOUT = "llm_timeout"
    RATE_LIMIT = "llm_rate_limit"
    AUTHENTICATION = "llm_authentication"
    BAD_REQUEST = "llm_bad_request"
    INSUFFICIENT_CREDITS = "llm_insufficient_credits"
    EMPTY_RESPONSE = "llm_empty_response"
    ERROR = "llm_error"
    CONTEXT_WINDOW_EXCEEDED = "context_window_exceeded"
    SYSTEM_PROMPT_OVERFLOW = "context_window_overflow_in_system_prompt"


_STOP_REASONS = {
    ModelErrorType.INSUFFICIENT_CREDITS: StopReason.INSUFFICIENT_CREDITS,
    ModelErrorType.EMPTY_RESPONSE: StopReason.INVALID_LLM_RESPONSE,
    ModelErrorType.SYSTEM_PROMPT_OVERFLOW: StopReason.CONTEXT_WINDOW_OVERFLOW_IN_SYSTEM_PROMPT,
}


class ModelError(Exception):
    """A model call failed; `detail` is what the provider said, `retryable` whether the same call may do better."""

    def __init__(
        self,
        kind: ModelErrorType,
        message: str,
        detail: str = "",
        *,
        retryable: bool = False,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.detail = detail
        self.retryable = retryable
        self.retry_after = retry_after
        # What the provider refused it with, whole; for traces only, because nothing in it is redacted.
        self.body = b""

    @property
    def stop_reason(self) -> StopReason:
        """Why the run stops because of it."""
        return _STOP_REASONS.get(self.kind, StopReason.LLM_API_ERROR)

    def as_run_error(self) -> RunError:
        """As it is stored on the run and on the step."""
        return RunError(type=self.kind.value, message=self.message, detail=self.detail)
