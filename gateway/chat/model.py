"""The objects of chat completions. Fields without a value are null, or left out where clients ask if they are there."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType


class ImageUrl(Struct, frozen=True):
    """An address, or `data:<media type>;base64,<data>`."""

    url: str
    detail: str | None = None


class PartIn(Struct, frozen=True):
    """A part of a message: `text` or `image_url`. Others are known to OpenAI and cannot be said to an agent."""

    type: str
    text: str | None = None
    image_url: ImageUrl | None = None


class MessageIn(Struct, frozen=True):
    """A message of the chat as the client has it."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[PartIn] | None = None
    name: str | None = None
    tool_call_id: str | None = None


class FunctionIn(Struct, frozen=True):
    """A function of the client."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolIn(Struct, frozen=True):
    """A tool that the client runs; only functions."""

    type: str
    function: FunctionIn | None = None


class StreamOptions(Struct, frozen=True):
    """What a stream also tells."""

    include_usage: bool | None = None


class ChatBody(Struct, frozen=True, kw_only=True):
    """A chat completion's request. `model` is the id of an agent, which has its own settings: others are ignored."""

    model: str
    messages: list[MessageIn]
    tools: list[ToolIn] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class FunctionCall(Struct, frozen=True):
    """Which function, with which arguments: JSON in a string."""

    name: str
    arguments: str


class ToolCall(Struct, frozen=True, kw_only=True):
    """A call that waits for the client's answer."""

    # Only in a stream.
    index: int | UnsetType = UNSET
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class Message(Struct, frozen=True, kw_only=True):
    """What the agent said."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: str | None = None
    tool_calls: list[ToolCall] | UnsetType = UNSET


class Delta(Struct, frozen=True, kw_only=True):
    """What is to be added to the message."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ToolCall] | UnsetType = UNSET


FinishReason = Literal["stop", "length", "tool_calls", "content_filter"]


class Choice(Struct, frozen=True, kw_only=True):
    """The only one."""

    index: int = 0
    message: Message
    logprobs: None = None
    finish_reason: FinishReason


class ChunkChoice(Struct, frozen=True, kw_only=True):
    """The only one, in a stream."""

    index: int = 0
    delta: Delta
    logprobs: None = None
    finish_reason: FinishReason | None = None


class PromptDetails(Struct, frozen=True):
    """Of the prompt's tokens."""

    cached_tokens: int


class CompletionDetails(Struct, frozen=True):
    """Of the answer's tokens."""

    reasoning_tokens: int


class Usage(Struct, frozen=True):
    """What was spent, over all steps that the agent took."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class ChatChunk(Struct, frozen=True, kw_only=True):
    """A piece of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: list[ChunkChoice]
    # Present only if asked for: null until the last chunk.
    usage: Usage | UnsetType | None = UNSET


class ErrorDetail(Struct, frozen=True, kw_only=True):
    """What went wrong, as the SDK expects it, with what gRPC said: its reason is the `code`."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
    metadata: dict[str, str] | UnsetType = UNSET
    run_id: str | UnsetType = UNSET


class ChatError(Struct, frozen=True):
    """An error."""

    error: ErrorDetail
