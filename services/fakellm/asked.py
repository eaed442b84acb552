"""What a request asks, whichever API it came by."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from services.fakellm.scripts import Api
from services.models.script import Situation

# The same rule of thumb as everywhere: good enough for a bill that nobody pays.
_BYTES_PER_TOKEN = 4


class MomentKind(StrEnum):
    """What a conversation is made of, as far as it matters here."""

    SAID = "said"
    CALL = "call"
    RETURN = "return"


class Moment(NamedTuple):
    """The user said something, the model called a tool, or a tool returned."""

    kind: MomentKind
    text: str
    call_id: str = ""


class Asked(Struct, frozen=True):
    """A request, understood."""

    api: Api
    model: str
    stream: bool
    situation: Situation
    moments: tuple[Moment, ...]
    input_tokens: int
    # Chat Completions tells usage in a stream only if asked to.
    include_usage: bool = True
    # The sampling parameters that are in a Messages request.
    sampling: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """The last text of the user."""
        return self.situation.said


class BadRequestError(Exception):
    """What the vendor would refuse with status 400."""


class _Body(Struct):
    model: str
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None


class _StreamOptions(Struct):
    include_usage: bool | None = None


class _ChatBody(_Body, kw_only=True):
    messages: list[dict[str, Any]]
    stream_options: _StreamOptions | None = None


class _ResponsesBody(_Body, kw_only=True):
    input: str | list[dict[str, Any]]


class _MessagesBody(_Body, kw_only=True):
    messages: list[dict[str, Any]]
    max_tokens: int
    temperature: Any = msgspec.UNSET
    top_p: Any = msgspec.UNSET
    top_k: Any = msgspec.UNSET


def read(api: Api, body: bytes) -> Asked:
    """Understand a request body, or say why not."""
    try:
        parsed = _DECODERS[api].decode(body)
        moments = tuple(_moments(parsed))
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
        raise BadRequestError(f"We could not parse the JSON body of your request: {error}") from None
    return Asked(
        api=api,
        model=parsed.model,
        stream=bool(parsed.stream),
        situation=_situation(moments, _forced(parsed)),
        moments=moments,
        input_tokens=-(-len(body) // _BYTES_PER_TOKEN),
        include_usage=not isinstance(parsed, _ChatBody) or _wants_usage(parsed),
        sampling=_sampling(parsed),
    )


_DECODERS: dict[Api, msgspec.json.Decoder[Any]] = {
    Api.CHAT: msgspec.json.Decoder(_ChatBody),
    Api.RESPONSES: msgspec.json.Decoder(_ResponsesBody),
    Api.MESSAGES: msgspec.json.Decoder(_MessagesBody),
}


def _wants_usage(body: _ChatBody) -> bool:
    return body.stream_options is not None and bool(body.stream_options.include_usage)


def _sampling(body: _Body) -> tuple[str, ...]:
    if not isinstance(body, _MessagesBody):
        return ()
    return tuple(name for name in ("temperature", "top_p", "top_k") if getattr(body, name) is not msgspec.UNSET)


def _moments(body: _Body) -> Iterator[Moment]:
    match body:
        case _ChatBody(messages=messages):
            for message in messages:
                yield from _chat_moments(message)
        case _ResponsesBody(input=str(text)):
            yield Moment(MomentKind.SAID, text)
        case _ResponsesBody(input=list(items)):
            for item in items:
                yield from _responses_moments(item)
        case _MessagesBody(messages=messages):
            for message in messages:
                yield from _messages_moments(message)


def _chat_moments(message: dict[str, Any]) -> Iterator[Moment]:
    match message["role"]:
        case "user":
            yield Moment(MomentKind.SAID, _text(message["content"]))
        case "assistant":
            for call in message.get("tool_calls") or ():
                yield Moment(MomentKind.CALL, call["function"]["name"], call["id"])
        case "tool":
            yield Moment(MomentKind.RETURN, _text(message["content"]), message["tool_call_id"])


def _responses_moments(item: dict[str, Any]) -> Iterator[Moment]:
    match item.get("type", "message"):
        case "message" if item["role"] == "user":
            yield Moment(MomentKind.SAID, _text(item["content"]))
        case "function_call":
            yield Moment(MomentKind.CALL, item["name"], item["call_id"])
        case "function_call_output":
            yield Moment(MomentKind.RETURN, _text(item["output"]), item["call_id"])


def _messages_moments(message: dict[str, Any]) -> Iterator[Moment]:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for block in blocks:
        if block["type"] == "tool_use":
            yield Moment(MomentKind.CALL, block["name"], block["id"])
        elif block["type"] == "tool_result":
            yield Moment(MomentKind.RETURN, _text(block.get("content")), block["tool_use_id"])
    if message["role"] == "user":
        # Two messages in a row are one here, so each text counts as a message.
        yield from (Moment(MomentKind.SAID, block["text"]) for block in blocks if block["type"] == "text")


def _text(content: Any) -> str:
    """The text of a content: a string, or blocks of which some are text."""
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(block["text"] for block in content if "text" in block)


def _situation(moments: Iterable[Moment], forced: str) -> Situation:
    said, turns, returns = "", 0, list[tuple[str, str]]()
    names: dict[str, str] = {}
    before = MomentKind.SAID
    for kind, text, call_id in moments:
        if kind is MomentKind.SAID:
            said, turns, returns = text, 0, []
        elif kind is MomentKind.CALL:
            names[call_id] = text
        else:
            if before is not MomentKind.RETURN:
                turns, returns = turns + 1, []
            returns.append((names.get(call_id, ""), text))
        before = kind
    return Situation(said, turns, tuple(returns), forced)


def _forced(body: _Body) -> str:
    """The tool that must be called: the one that is named, else the first."""
    given = body.tool_choice
    choice: dict[str, Any] = given if isinstance(given, dict) else {"type": given}
    if choice.get("type") not in ("required", "any", "function", "tool") or not body.tools:
        return ""
    named = choice.get("name") or choice.get("function", {}).get("name")
    first = body.tools[0]
    return str(named or first.get("name") or first.get("function", {}).get("name", ""))
