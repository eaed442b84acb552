"""OpenAI Responses: the API of OpenAI's own models, which keeps their reasoning between calls."""

from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from services.messages.model import Image, Reasoning, Text, ToolCall
from services.models import catalog
from services.models.api import ModelEvent, ModelRequest
from services.models.history import (
    RESPONSES_MARK,
    Returned,
    Said,
    Shown,
    Written,
    Wrote,
    arguments_json,
    shown_image,
    turns,
    without_images,
)
from services.models.http import Endpoint, exchange
from services.models.openai_chat import image_url, is_strict, parameters
from services.models.openai_responses_stream import ResponsesReader

PATH = "/responses"


class ResponsesProvider:
    """Models behind one Responses endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn of the model."""
        return exchange(self._endpoint, self.preview(request), ResponsesReader(), request)

    def preview(self, request: ModelRequest) -> bytes:
        """The body of that turn's request."""
        return msgspec.json.encode(responses_body(request))


def responses_body(request: ModelRequest) -> dict[str, Any]:
    """The request as it is sent. Nothing is stored at the provider: the log is ours."""
    settings = request.settings
    body: dict[str, Any] = {"model": request.model, "stream": True, "store": False}
    body |= _reasoning(request)
    body |= _tools(request)
    if settings.temperature is not None:
        body["temperature"] = settings.temperature
    if settings.max_output_tokens is not None:
        body["max_output_tokens"] = settings.max_output_tokens
    if settings.response_schema is not None:
        schema = settings.response_schema
        body["text"] = {
            "format": {"type": "json_schema", "name": "answer", "schema": schema, "strict": is_strict(schema)}
        }
    if request.system:
        body["instructions"] = request.system
    body["input"] = _input(request)
    return body


def _reasoning(request: ModelRequest) -> dict[str, Any]:
    effort = request.settings.reasoning_effort
    if effort is None and not catalog.openai_reasons(request.model):
        return {}
    body: dict[str, Any] = {"include": ["reasoning.encrypted_content"]}
    # Summaries are only asked for with an effort: some accounts may not have them, and would be refused everything.
    if effort is not None:
        body["reasoning"] = {"effort": effort, "summary": "auto"}
    return body


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    body: dict[str, Any] = {
        "tools": [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": parameters(tool.parameters),
                "strict": False,
            }
            for tool in request.tools
        ]
    }
    if request.forced:
        only = {"type": "function", "name": request.tools[0].name}
        body["tool_choice"] = only if len(request.tools) == 1 else "required"
    if not request.parallel:
        body["parallel_tool_calls"] = False
    return body


def _input(request: ModelRequest) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for turn in turns(request.messages):
        match turn:
            case Said(by_system=True, content=content):
                items.append({"role": "developer", "content": without_images(content)})
            case Said(content=content):
                items.append({"role": "user", "content": [_part(part) for part in content]})
            case Wrote(parts=parts):
                items += _wrote(parts)
            case Returned(returns=returns):
                items += [
                    {"type": "function_call_output", "call_id": each.call_id, "output": _output(each.content)}
                    for each in returns
                ]
    return items


def _part(part: Shown) -> dict[str, Any]:
    shown = shown_image(part) if isinstance(part, Image) else part
    if isinstance(shown, Text):
        return {"type": "input_text", "text": shown.text}
    return {"type": "input_image", "image_url": image_url(shown), "detail": shown.detail or "auto"}


def _output(content: tuple[Shown, ...]) -> str | list[dict[str, Any]]:
    if any(isinstance(part, Image) for part in content):
        return [_part(part) for part in content]
    return without_images(content)


def _wrote(parts: tuple[Written, ...]) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    for part in parts:
        match part:
            case Text(text=text) if text:
                items.append({"role": "assistant", "content": text})
            case ToolCall():
                items.append(
                    {
                        "type": "function_call",
                        "call_id": part.id,
                        "name": part.name,
                        "arguments": arguments_json(part),
                    }
                )
            case Reasoning(signature=signature) if signature.startswith(RESPONSES_MARK) and part.redacted:
                items.append(
                    {
                        "type": "reasoning",
                        "id": signature.removeprefix(RESPONSES_MARK),
                        "summary": [{"type": "summary_text", "text": part.text}] if part.text else [],
                        "encrypted_content": part.redacted,
                    }
                )
    # Reasoning that led to nothing we kept is refused.
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items
