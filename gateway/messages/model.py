"""The wire's message objects. The SDKs take an object apart by type: one wrong field spoils the whole of it."""

from typing import Any, Literal

from msgspec import Struct, structs


class _Common(Struct, frozen=True, kw_only=True, tag_field="message_type"):
    """What every message has. Fields that are not set are sent as null."""

    id: str
    # Seconds, with offset.
    date: str
    name: str | None = None
    otid: str | None = None
    sender_id: str | None = None
    step_id: str | None = None
    is_err: bool | None = None
    seq_id: int | None = None
    run_id: str | None = None


class TextPart(Struct, frozen=True, tag="text"):
    """Text."""

    text: str


class Base64Image(Struct, frozen=True, tag="base64"):
    """A picture by its bytes."""

    media_type: str
    data: str
    detail: str | None = None


class UrlImage(Struct, frozen=True, tag="url"):
    """A picture by its address."""

    url: str


class ImagePart(Struct, frozen=True, tag="image"):
    """A picture."""

    source: Base64Image | UrlImage


Content = str | list[TextPart | ImagePart]


class ToolCall(Struct, frozen=True):
    """A call; `arguments` is JSON in a string. In a delta it may be missing."""

    name: str
    arguments: str | None
    tool_call_id: str


class ToolReturn(Struct, frozen=True, tag="tool"):
    """What came of a call, or what the client says came of it."""

    tool_call_id: str
    tool_return: Content
    status: Literal["success", "error"]
    stdout: list[str] | None = None
    stderr: list[str] | None = None


class ApprovalReturn(Struct, frozen=True, tag="approval"):
    """Whether a call may be made."""

    tool_call_id: str
    approve: bool
    reason: str | None = None


class SystemMessage(_Common, frozen=True, kw_only=True, tag="system_message"):
    """Instructions."""

    content: str


class UserMessage(_Common, frozen=True, kw_only=True, tag="user_message"):
    """What a person or a program said."""

    content: Content


class ReasoningMessage(_Common, frozen=True, kw_only=True, tag="reasoning_message"):
    """The model's reasoning."""

    reasoning: str
    source: Literal["reasoner_model", "non_reasoner_model"] = "reasoner_model"
    signature: str | None = None


class HiddenReasoningMessage(_Common, frozen=True, kw_only=True, tag="hidden_reasoning_message"):
    """Reasoning that the provider does not show."""

    state: Literal["redacted", "omitted"] = "redacted"
    hidden_reasoning: str | None = None


class AssistantMessage(_Common, frozen=True, kw_only=True, tag="assistant_message"):
    """What the model said."""

    content: str


class ToolCallMessage(_Common, frozen=True, kw_only=True, tag="tool_call_message"):
    """Calls that need no approval; a single object in token deltas."""

    tool_call: ToolCall
    tool_calls: list[ToolCall] | ToolCall


class ApprovalRequestMessage(_Common, frozen=True, kw_only=True, tag="approval_request_message"):
    """Calls that wait for an answer; a single object in token deltas."""

    tool_call: ToolCall
    tool_calls: list[ToolCall] | ToolCall


class ToolReturnMessage(_Common, frozen=True, kw_only=True, tag="tool_return_message"):
    """The returns of one turn; the fields at the top are those of the first."""

    tool_return: str
    status: Literal["success", "error"]
    tool_call_id: str
    stdout: list[str] | None = None
    stderr: list[str] | None = None
    tool_returns: list[ToolReturn]


class ApprovalResponseMessage(_Common, frozen=True, kw_only=True, tag="approval_response_message"):
    """What was decided; the deprecated fields are those of the first decision."""

    approvals: list[ApprovalReturn | ToolReturn]
    approve: bool | None = None
    approval_request_id: str | None = None
    reason: str | None = None


class SummaryMessage(_Common, frozen=True, kw_only=True, tag="summary_message"):
    """Stands for older messages."""

    summary: str
    compaction_stats: dict[str, Any] | None = None


LettaMessage = (
    SystemMessage
    | UserMessage
    | ReasoningMessage
    | HiddenReasoningMessage
    | AssistantMessage
    | ToolCallMessage
    | ApprovalRequestMessage
    | ToolReturnMessage
    | ApprovalResponseMessage
    | SummaryMessage
)


def type_of(message: LettaMessage) -> str:
    """Its `message_type`."""
    return str(type(message).__struct_config__.tag)


def with_seq(message: LettaMessage, seq_id: int) -> LettaMessage:
    """The same with its number in the stream."""
    return structs.replace(message, seq_id=seq_id)


class StopReason(Struct, frozen=True, tag_field="message_type", tag="stop_reason"):
    """Why it stopped."""

    stop_reason: str


class UsageStatistics(Struct, frozen=True, tag_field="message_type", tag="usage_statistics"):
    """Tokens spent."""

    completion_tokens: int = 0
    prompt_tokens: int = 0
    total_tokens: int = 0
    step_count: int = 0
    run_ids: list[str] | None = None
    cached_input_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None
    context_tokens: int | None = None


class Ping(_Common, frozen=True, kw_only=True, tag="ping"):
    """A sign of life, in full shape: newer SDKs take it for a message otherwise."""


class ErrorMessage(Struct, frozen=True, tag_field="message_type", tag="error_message"):
    """The payload of an error frame."""

    run_id: str
    error_type: str
    message: str
    detail: str | None = None
    seq_id: int | None = None


class LettaResponse(Struct, frozen=True):
    """What a message came to."""

    messages: list[LettaMessage]
    stop_reason: StopReason
    usage: UsageStatistics
    logprobs: Any = None
    turns: Any = None
