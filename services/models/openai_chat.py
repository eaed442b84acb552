"""OpenAI Chat Completions: also spoken by vLLM, Ollama, LM Studio and most proxies."""

from base64 import b64encode
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from services.messages.model import Image, Reasoning, Text
from services.models.api import ModelEvent, ModelRequest
from services.models.history import (
    CHAT_MARK,
    Returned,
    Said,
    Shown,
    Wrote,
    arguments_json,
    from_system,
    shown_image,
    turns,
    without_images,
)
from services.models.http import Endpoint, exchange
from services.models.openai_chat_stream import ChatReader

PATH = "/chat/completions"


class ChatProvider:
    """Models behind one Chat Completions endpoint. `own` is OpenAI's, which has renamed what others have not."""

    def __init__(self, endpoint: Endpoint, *, own: bool) -> None:
        self._endpoint = endpoint
        self._own = own

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn of the model."""
        reader = ChatReader(frozenset(tool.name for tool in request.tools))
        return exchange(self._endpoint, self.preview(request), reader, request)

    def preview(self, request: ModelRequest) -> bytes:
        """The body of that turn's request."""
        return msgspec.json.encode(chat_body(request, own=self._own))


def chat_body(request: ModelRequest, *, own: bool) -> dict[str, Any]:
    """The request as it is sent. What stays the same from call to call comes first, for prefix caches."""
    settings = request.settings
    body: dict[str, Any] = {"model": request.model, "stream": True, "stream_options": {"include_usage": True}}
    body |= _tools(request)
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.max_output_tokens is not None:
        body["max_completion_tokens" if own else "max_tokens"] = settings.max_output_tokens
    if settings.reasoning_effort is not None:
        body["reasoning_effort"] = settings.reasoning_effort
    if settings.response_schema is not None:
        schema = {"name": "answer", "schema": settings.response_schema, "strict": is_strict(settings.response_schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": schema}
    body["messages"] = _messages(request, own=own)
    return body


def is_strict(schema: dict[str, Any]) -> bool:
    """Whether a schema is closed, as OpenAI demands of schemas it is to enforce to the letter."""
    return schema.get("additionalProperties") is False


def image_url(image: Image) -> str:
    """The image's address, which may hold the image itself."""
    if image.data is None:
        return image.url
    return f"data:{image.media_type or 'image/png'};base64,{b64encode(image.data).decode()}"


def parameters(schema: dict[str, Any]) -> dict[str, Any]:
    """A tool's schema; vendors insist on an object even where there is nothing to pass."""
    return schema if schema.get("type") == "object" else {"type": "object", "properties": {}, **schema}


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    functions = [
        {"name": tool.name, "description": tool.description, "parameters": parameters(tool.parameters)}
        for tool in request.tools
    ]
    body: dict[str, Any] = {"tools": [{"type": "function", "function": function} for function in functions]}
    if request.forced:
        only = {"type": "function", "function": {"name": request.tools[0].name}}
        body["tool_choice"] = only if len(request.tools) == 1 else "required"
    # True is everybody's default, and some servers do not know the field.
    if not request.parallel:
        body["parallel_tool_calls"] = False
    return body


def _messages(request: ModelRequest, *, own: bool) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    if request.system:
        messages.append({"role": "system", "content": request.system})
    history = turns(request.messages)
    last_said = max((place for place, turn in enumerate(history) if isinstance(turn, Said)), default=-1)
    for place, turn in enumerate(history):
        match turn:
            case Said(by_system=True, content=content):
                role, text = ("system", without_images(content)) if own else ("user", from_system(content))
                messages.append({"role": role, "content": text})
            case Said(content=content):
                messages.append({"role": "user", "content": _content(content)})
            case Wrote():
                messages += _wrote(turn, reasoning=place > last_said)
            case Returned(returns=returns):
                messages += [
                    {"role": "tool", "tool_call_id": each.call_id, "content": without_images(each.content)}
                    for each in returns
                ]
    return messages


def _content(content: tuple[Shown, ...]) -> str | list[dict[str, Any]]:
    # Plain text wherever possible: not every server takes lists.
    shown = [shown_image(part) if isinstance(part, Image) else part for part in content]
    if all(isinstance(part, Text) for part in shown):
        return "\n".join(part.text for part in shown if isinstance(part, Text))
    return [_part(part) for part in shown]


def _part(part: Shown) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    image = {"url": image_url(part)}
    if part.detail:
        image["detail"] = part.detail
    return {"type": "image_url", "image_url": image}


def _wrote(turn: Wrote, *, reasoning: bool) -> list[dict[str, Any]]:
    text = "".join(part.text for part in turn.parts if isinstance(part, Text))
    if not text and not turn.calls:
        return []
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    if turn.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments_json(call)}}
            for call in turn.calls
        ]
    # Models that think between tool calls want their thoughts back until they have answered, and only then, under the
    # name they came by.
    if reasoning and turn.calls:
        for part in turn.parts:
            if isinstance(part, Reasoning) and part.signature.startswith(CHAT_MARK):
                name = part.signature.removeprefix(CHAT_MARK)
                message[name] = message.get(name, "") + part.text
    return [message]
