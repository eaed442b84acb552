"""Anthropic Messages."""

import re
from base64 import b64encode
from collections.abc import AsyncGenerator
from typing import Any

import msgspec

from services.messages.model import Image, Outcome, Reasoning, Text, ToolCall, ToolReturn
from services.models import catalog
from services.models.anthropic_stream import AnthropicReader
from services.models.api import ModelEvent, ModelRequest
from services.models.history import (
    CHAT_MARK,
    RESPONSES_MARK,
    Returned,
    Said,
    Shown,
    Turn,
    Wrote,
    arguments_json,
    from_system,
    shown_image,
    turns,
)
from services.models.http import Endpoint, exchange
from services.models.openai_chat import parameters

PATH = "/v1/messages"

# The API's later version refuses a temperature. Who sets one gets the version, and the models, that have it.
_WITH_SAMPLING = {"anthropic-version": "2023-06-01"}
_CACHED = {"type": "ephemeral"}
# The newest turn, so that the next call finds it, and the one before, so that this call does.
_CACHED_TURNS = 2
_GO_ON = {"type": "text", "text": "(Continue.)"}
_BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_384}
_LEAST_BUDGET = 1_024
_EFFORTS = {"minimal": "low"}
_OTHER_ID_CHARACTERS = re.compile(r"[^a-zA-Z0-9_-]")

Blocks = list[dict[str, Any]]


class AnthropicProvider:
    """Models behind one Messages endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn of the model."""
        body = anthropic_body(request)
        headers = _WITH_SAMPLING if "temperature" in body else {}
        return exchange(self._endpoint, msgspec.json.encode(body), AnthropicReader(), request, headers)

    def preview(self, request: ModelRequest) -> bytes:
        """The body of that turn's request."""
        return msgspec.json.encode(anthropic_body(request))


def anthropic_body(request: ModelRequest) -> dict[str, Any]:
    """The request as it is sent, with marks where the provider is to cache."""
    settings, history = request.settings, turns(request.messages)
    limit = settings.max_output_tokens or catalog.anthropic_max_output(request.model)
    thinking = _thinking(request, history)
    body: dict[str, Any] = {
        "model": request.model,
        # The budget for thinking is part of the limit there, and no part of the answer here.
        "max_tokens": limit + thinking.get("budget_tokens", 0),
        "stream": True,
    }
    if thinking:
        body["thinking"] = thinking
    # Thinking models refuse a temperature; others refuse one above 1.
    if settings.temperature is not None and thinking.get("type") in (None, "disabled"):
        body["temperature"] = min(settings.temperature, 1.0)
    output = _output_config(request, thinking)
    if output:
        body["output_config"] = output
    body |= _tools(request)
    if request.system:
        body["system"] = [{"type": "text", "text": request.system, "cache_control": _CACHED}]
    body["messages"] = _messages(history)
    return body


def _thinking(request: ModelRequest, history: list[Turn]) -> dict[str, Any]:
    effort, budget = request.settings.reasoning_effort, request.settings.max_reasoning_tokens
    # A forced call and thinking exclude each other.
    if request.forced or (effort is None and budget is None) or _began_without_thinking(history):
        return {}
    if catalog.anthropic_takes_budget(request.model):
        tokens = 0 if effort == "none" else budget or _BUDGETS.get(effort or "", _BUDGETS["high"])
        return {"type": "enabled", "budget_tokens": max(tokens, _LEAST_BUDGET)} if tokens else {}
    if effort == "none":
        return {"type": "disabled"}
    return {"type": "adaptive", "display": "summarized"}


def _began_without_thinking(history: list[Turn]) -> bool:
    """Whether the model is in the middle of a turn that has no thoughts of its own; it may not start then."""
    if not history or not isinstance(history[-1], Returned):
        return False
    wrote = history[-2]
    return isinstance(wrote, Wrote) and not any(isinstance(part, Reasoning) and _is_own(part) for part in wrote.parts)


def _output_config(request: ModelRequest, thinking: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    effort = request.settings.reasoning_effort
    if thinking.get("type") == "adaptive" and effort is not None:
        config["effort"] = _EFFORTS.get(effort, effort)
    if request.settings.response_schema is not None:
        config["format"] = {"type": "json_schema", "schema": request.settings.response_schema}
    return config


def _tools(request: ModelRequest) -> dict[str, Any]:
    if not request.tools:
        return {}
    tools = [
        {"name": tool.name, "description": tool.description, "input_schema": parameters(tool.parameters)}
        for tool in request.tools
    ]
    if not request.system:
        tools[-1]["cache_control"] = _CACHED
    choice: dict[str, Any] = {"type": "auto"}
    if request.forced:
        only = len(request.tools) == 1
        choice = {"type": "tool", "name": request.tools[0].name} if only else {"type": "any"}
    if not request.parallel:
        choice["disable_parallel_tool_use"] = True
    plain = not request.forced and request.parallel
    return {"tools": tools} if plain else {"tools": tools, "tool_choice": choice}


def _messages(history: list[Turn]) -> Blocks:
    """Turns by turns: the same role never speaks twice in a row, a user begins and a user ends."""
    messages: Blocks = []
    for turn in history:
        role = "assistant" if isinstance(turn, Wrote) else "user"
        blocks = _blocks(turn)
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    if not messages or messages[0]["role"] == "assistant":
        messages.insert(0, {"role": "user", "content": [dict(_GO_ON)]})
    if messages[-1]["role"] == "assistant":
        messages.append({"role": "user", "content": [dict(_GO_ON)]})
    for message in [message for message in messages if message["role"] == "user"][-_CACHED_TURNS:]:
        message["content"][-1]["cache_control"] = _CACHED
    return messages


def _blocks(turn: Turn) -> Blocks:
    match turn:
        case Said(by_system=True, content=content):
            return [{"type": "text", "text": from_system(content)}]
        case Said(content=content):
            return _shown(content)
        case Wrote():
            return _wrote(turn)
        case Returned(returns=returns):
            return [_returned(each) for each in returns]


def _shown(content: tuple[Shown, ...]) -> Blocks:
    blocks: Blocks = []
    for part in content:
        shown = shown_image(part) if isinstance(part, Image) else part
        if isinstance(shown, Image):
            blocks.append({"type": "image", "source": _source(shown)})
        # Blank text is refused.
        elif shown.text.strip():
            blocks.append({"type": "text", "text": shown.text})
    return blocks


def _source(image: Image) -> dict[str, str]:
    if image.data is None:
        return {"type": "url", "url": image.url}
    media_type = image.media_type or "image/png"
    return {"type": "base64", "media_type": media_type, "data": b64encode(image.data).decode()}


def _wrote(turn: Wrote) -> Blocks:
    blocks: Blocks = []
    for part in turn.parts:
        match part:
            case Text(text=text) if text.strip():
                # Some texts end in white space, which is refused where the turn ends with it.
                blocks.append({"type": "text", "text": text.rstrip()})
            case Reasoning() if _is_own(part):
                blocks.append(_thought(part))
            case ToolCall():
                arguments = msgspec.Raw(arguments_json(part).encode())
                blocks.append({"type": "tool_use", "id": _call_id(part.id), "name": part.name, "input": arguments})
    # Thoughts alone are no turn.
    return blocks if any(block["type"] in ("text", "tool_use") for block in blocks) else []


def _thought(part: Reasoning) -> dict[str, Any]:
    if part.signature:
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    return {"type": "redacted_thinking", "data": part.redacted}


def _is_own(part: Reasoning) -> bool:
    """Whether it was sealed by Anthropic; other reasoning cannot be passed back."""
    return bool(part.signature or part.redacted) and not part.signature.startswith((RESPONSES_MARK, CHAT_MARK))


def _returned(result: ToolReturn) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _call_id(result.call_id)}
    content = _shown(result.content)
    if content:
        block["content"] = content
    if result.outcome is not Outcome.SUCCEEDED:
        block["is_error"] = True
    return block


def _call_id(call_id: str) -> str:
    """Other providers use characters in ids that are refused here."""
    return _OTHER_ID_CHARACTERS.sub("_", call_id)
