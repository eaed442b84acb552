"""Errors in the words of each vendor."""

from typing import Any, NamedTuple

from services.fakellm.scripts import Api, Failure

REQUEST_ID = "req_fake"


class Words(NamedTuple):
    """What a vendor calls an error."""

    type: str
    code: str | None
    message: str


_OPENAI = {
    400: Words("invalid_request_error", None, "Invalid request."),
    401: Words("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
    403: Words(
        "request_forbidden", "unsupported_country_region_territory", "Country, region, or territory not supported"
    ),
    404: Words("invalid_request_error", "model_not_found", "The model does not exist or you do not have access to it."),
    408: Words("timeout", "request_timeout", "Request timed out."),
    413: Words("invalid_request_error", "request_too_large", "Request body too large."),
    429: Words("requests", "rate_limit_exceeded", "Rate limit reached on requests per min (RPM): Limit 3, Used 3."),
    500: Words("server_error", "server_error", "The server had an error while processing your request."),
    503: Words("server_error", "service_unavailable", "The engine is currently overloaded, please try again later."),
}
_ANTHROPIC = {
    400: Words("invalid_request_error", None, "Invalid request."),
    401: Words("authentication_error", None, "invalid x-api-key"),
    402: Words("billing_error", None, "Your organization has a problem with its billing."),
    403: Words("permission_error", None, "Your API key does not have permission to use the specified resource."),
    404: Words("not_found_error", None, "The requested resource could not be found."),
    408: Words("timeout_error", None, "Request timed out."),
    413: Words("request_too_large", None, "Request exceeds the maximum allowed number of bytes."),
    429: Words("rate_limit_error", None, "This request would exceed your organization's rate limit."),
    500: Words("api_error", None, "Internal server error"),
    503: Words("api_error", None, "Service unavailable"),
    504: Words("timeout_error", None, "Request timed out."),
    529: Words("overloaded_error", None, "Overloaded"),
}
_QUOTA = Words(
    "insufficient_quota",
    "insufficient_quota",
    "You exceeded your current quota, please check your plan and billing details.",
)
_KINDS = {
    (Api.CHAT, "overflow"): Words(
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 131072 tokens. "
        "Please reduce the length of the messages.",
    ),
    (Api.RESPONSES, "overflow"): Words(
        "invalid_request_error",
        "context_length_exceeded",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    (Api.MESSAGES, "overflow"): Words(
        "invalid_request_error", None, "prompt is too long: 210000 tokens > 200000 maximum"
    ),
    (Api.CHAT, "quota"): _QUOTA,
    (Api.RESPONSES, "quota"): _QUOTA,
    (Api.MESSAGES, "quota"): Words(
        "invalid_request_error",
        None,
        "Your credit balance is too low to access the Anthropic API. "
        "Please go to Plans & Billing to upgrade or purchase credits.",
    ),
}


def status_of(api: Api, failure: Failure) -> int:
    """The HTTP status; Anthropic says 400 to those who have no money left."""
    return 400 if (api, failure.kind) == (Api.MESSAGES, "quota") else failure.status


def words(api: Api, failure: Failure) -> Words:
    """How the vendor puts it."""
    by_status = _ANTHROPIC if api is Api.MESSAGES else _OPENAI
    found = _KINDS.get((api, failure.kind)) or by_status.get(failure.status) or by_status[500]
    return found._replace(message=failure.message) if failure.message else found


def body(api: Api, failure: Failure) -> dict[str, Any]:
    """The JSON body of the error."""
    said = words(api, failure)
    if api is Api.MESSAGES:
        error = {"type": said.type, "message": said.message}
        return {"type": "error", "error": error, "request_id": REQUEST_ID}
    param = {Api.CHAT: "messages", Api.RESPONSES: "input"}[api] if failure.kind == "overflow" else None
    return {"error": {"message": said.message, "type": said.type, "param": param, "code": said.code}}
