"""A chat's request as what is said to an agent.

The agent keeps its own history. Of the messages of a request only those after the last assistant message are new to it:
tool messages answer the calls it waits with, user messages are said to it. What the client holds as history, and its
system prompt, are not passed on.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.http.problems import invalid
from gateway.messages import inputs
from gateway.messages.model import Base64Image, UrlImage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.chat.model import ChatBody, ImageUrl, MessageIn, PartIn, ToolIn

_Loc = tuple[str | int, ...]
_DATA_URL: Final = re.compile(r"data:(?P<media>[^;,]+);base64,(?P<data>.*)", re.DOTALL)


def said(body: ChatBody) -> inputs.SendBody:
    """What is new, or 422."""
    answers: list[inputs.DecisionIn] = []
    messages: list[inputs.MessageIn] = []
    for index, message in _new(body.messages):
        loc: _Loc = ("body", "messages", index)
        if message.role == "tool":
            answers.append(_answer(message, loc))
        else:
            content = _content(message, loc)
            messages.append(inputs.MessageIn(type="message", role="user", content=content, name=message.name))
    if answers:
        messages.insert(0, inputs.MessageIn(type="approval", approvals=answers))
    if not messages:
        raise invalid(("body", "messages"), "A user or tool message must follow the last assistant message.")
    return inputs.SendBody(messages=messages, client_tools=_tools(body.tools), stream_tokens=body.stream is True)


def _new(messages: Sequence[MessageIn]) -> Iterator[tuple[int, MessageIn]]:
    """User and tool messages after the last one of the assistant, each with its place."""
    last = max((index for index, each in enumerate(messages) if each.role == "assistant"), default=-1)
    return ((i, each) for i, each in enumerate(messages) if i > last and each.role in ("user", "tool"))


def _answer(message: MessageIn, loc: _Loc) -> inputs.DecisionIn:
    if not message.tool_call_id:
        raise invalid((*loc, "tool_call_id"), "Field required", "missing")
    content = _content(message, loc)
    return inputs.DecisionIn(message.tool_call_id, "tool", tool_return=content, status="success")


def _content(message: MessageIn, loc: _Loc) -> inputs.ContentIn:
    if message.content is None:
        raise invalid((*loc, "content"), "Field required", "missing")
    if isinstance(message.content, str):
        return message.content
    if not message.content:
        raise invalid((*loc, "content"), "List should have at least 1 item")
    return [_part(part, (*loc, "content", index)) for index, part in enumerate(message.content)]


def _part(part: PartIn, loc: _Loc) -> inputs.TextIn | inputs.ImageIn:
    if part.type == "text" and part.text is not None:
        return inputs.TextIn(part.text)
    if part.type == "image_url" and part.image_url is not None:
        return _image(part.image_url)
    if part.type in ("text", "image_url"):
        raise invalid((*loc, part.type), "Field required", "missing")
    raise invalid((*loc, "type"), "Input should be 'text' or 'image_url'")


def _image(image: ImageUrl) -> inputs.ImageIn:
    data = _DATA_URL.fullmatch(image.url)
    if data is None:
        return inputs.ImageIn(UrlImage(image.url))
    return inputs.ImageIn(Base64Image(data["media"], data["data"], image.detail))


def _tools(tools: Sequence[ToolIn] | None) -> list[inputs.ClientToolIn] | None:
    return [_tool(tool, ("body", "tools", index)) for index, tool in enumerate(tools)] if tools else None


def _tool(tool: ToolIn, loc: _Loc) -> inputs.ClientToolIn:
    if tool.type != "function":
        raise invalid((*loc, "type"), "Input should be 'function'")
    if tool.function is None:
        raise invalid((*loc, "function"), "Field required", "missing")
    return inputs.ClientToolIn(tool.function.name, tool.function.description, tool.function.parameters)
