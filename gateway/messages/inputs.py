"""What clients say: messages, approvals, denials and results of their own tools."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from common.pb.bridle.v1 import message_pb2, tool_pb2
from gateway.http.problems import bad_request, invalid
from gateway.messages.model import Base64Image, UrlImage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from google.protobuf.struct_pb2 import Struct as PbStruct

_NO_APPROVALS: Final = "Invalid approval response. Approval response message does not contain any approvals."
# Protobuf takes messages apart to a depth of 100, and a level of JSON is three of them.
_MAX_DEPTH: Final = 28
_ROLES: Final = {"user": message_pb2.Message.ROLE_USER, "system": message_pb2.Message.ROLE_SYSTEM}
_OUTCOMES: Final = {
    "success": message_pb2.ToolReturn.OUTCOME_SUCCEEDED,
    "error": message_pb2.ToolReturn.OUTCOME_FAILED,
}


class TextIn(Struct, frozen=True, tag="text"):
    """Text."""

    text: str


class ImageIn(Struct, frozen=True, tag="image"):
    """A picture."""

    source: Base64Image | UrlImage


ContentIn = str | list[TextIn | ImageIn]


class DecisionIn(Struct, frozen=True):
    """An approval or denial of a call, or the return of one that the client ran."""

    tool_call_id: str
    type: Literal["approval", "tool"] | None = None
    approve: bool | None = None
    reason: str | None = None
    tool_return: ContentIn | None = None
    status: Literal["success", "error"] | None = None
    stdout: list[str] | None = None
    stderr: list[str] | None = None


class MessageIn(Struct, frozen=True):
    """One message of a request. Without `type`, what it holds decides what it is."""

    type: Literal["message", "approval", "tool_return"] | None = None
    role: Literal["user", "system", "assistant"] | None = None
    content: ContentIn | None = None
    name: str | None = None
    otid: str | None = None
    approvals: list[DecisionIn] | None = None
    tool_returns: list[DecisionIn] | None = None
    # Deprecated: one decision, by the id of its call.
    approve: bool | None = None
    approval_request_id: str | None = None
    reason: str | None = None

    @property
    def kind(self) -> str:
        """What it is."""
        if self.type is not None:
            return self.type
        decides = self.approve is not None or self.approval_request_id is not None or self.approvals is not None
        return "approval" if decides else "message"


class ClientToolIn(Struct, frozen=True):
    """A tool that the client runs."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class SendBody(Struct, frozen=True, kw_only=True):
    """What is said to an agent, and how the answer is wanted."""

    messages: list[MessageIn] | None = None
    input: ContentIn | None = None
    max_steps: Annotated[int, Meta(ge=1, le=1000)] | None = None
    use_assistant_message: bool = True
    assistant_message_tool_name: str = "send_message"
    assistant_message_tool_kwarg: str = "message"
    include_return_message_types: list[str] | None = None
    client_tools: list[ClientToolIn] | None = None
    override_model: str | None = None
    override_system: str | None = None
    system: str | None = None
    include_compaction_messages: bool = False
    streaming: bool | UnsetType = UNSET
    stream_tokens: bool = False
    include_pings: bool = True
    background: bool = False
    callback_url: str | None = None
    # Conversation routes that name the default conversation say whose.
    agent_id: str | None = None

    @property
    def said(self) -> list[MessageIn]:
        """The messages, or 422."""
        if (self.messages is None) == (self.input is None):
            raise invalid(("body",), "Value error, Either messages or input must be given, and not both.")
        if self.messages is None:
            return [MessageIn(type="message", role="user", content=self.input)]
        if not self.messages:
            raise invalid(("body", "messages"), "Value error, Messages must not be empty.")
        return self.messages

    @property
    def otids(self) -> list[str] | None:
        """The client's own ids of all messages, or None if one has none."""
        found = [message.otid for message in self.messages or ()]
        return [each for each in found if each] if found and all(found) else None


def inputs(messages: Sequence[MessageIn], first: int = 0) -> list[message_pb2.InputMessage]:
    """Regular messages, or 422 naming the one that is none."""
    return [_input(message, ("body", "messages", first + index)) for index, message in enumerate(messages)]


def _input(message: MessageIn, loc: tuple[str | int, ...]) -> message_pb2.InputMessage:
    if message.kind != "message":
        raise bad_request("An approval must be the first message of a request.")
    if message.role is None:
        raise invalid((*loc, "role"), "Field required", "missing")
    if message.role not in _ROLES:
        raise invalid((*loc, "role"), "Input should be 'user' or 'system'")
    if message.content is None:
        raise invalid((*loc, "content"), "Field required", "missing")
    return message_pb2.InputMessage(
        role=_ROLES[message.role],
        parts=_parts(message.content, (*loc, "content")),
        name=message.name or "",
        otid=message.otid or "",
    )


def decisions(message: MessageIn) -> list[message_pb2.Decision]:
    """What an approval message decides, or 400."""
    loc: tuple[str | int, ...] = ("body", "messages", 0)
    given = message.tool_returns if message.kind == "tool_return" else message.approvals
    if given is None and message.approval_request_id is not None:
        given = [
            DecisionIn(message.approval_request_id, "approval", bool(message.approve), message.reason),
        ]
    if not given:
        raise bad_request(_NO_APPROVALS)
    name = "tool_returns" if message.kind == "tool_return" else "approvals"
    return [_decision(each, message.kind, (*loc, name, index)) for index, each in enumerate(given)]


def _decision(given: DecisionIn, kind: str, loc: tuple[str | int, ...]) -> message_pb2.Decision:
    returned = given.type == "tool" or (given.type is None and (kind == "tool_return" or given.approve is None))
    decision = message_pb2.Decision(tool_call_id=given.tool_call_id)
    if returned:
        decision.result.CopyFrom(_result(given, loc))
    elif given.approve is None:
        raise invalid((*loc, "approve"), "Field required", "missing")
    elif given.approve:
        decision.approve.SetInParent()
    else:
        decision.deny.reason = given.reason or ""
    return decision


def _result(given: DecisionIn, loc: tuple[str | int, ...]) -> message_pb2.ToolReturn:
    if given.tool_return is None:
        raise invalid((*loc, "tool_return"), "Field required", "missing")
    if given.status is None:
        raise invalid((*loc, "status"), "Field required", "missing")
    return message_pb2.ToolReturn(
        tool_call_id=given.tool_call_id,
        outcome=_OUTCOMES[given.status],
        content=_parts(given.tool_return, (*loc, "tool_return")),
        stdout=given.stdout or (),
        stderr=given.stderr or (),
    )


def _parts(content: ContentIn, loc: tuple[str | int, ...]) -> list[message_pb2.Part]:
    if isinstance(content, str):
        return [message_pb2.Part(text=message_pb2.Text(text=content))]
    if not content:
        raise invalid(loc, "List should have at least 1 item")
    return [_part(part, (*loc, index)) for index, part in enumerate(content)]


def _part(part: TextIn | ImageIn, loc: tuple[str | int, ...]) -> message_pb2.Part:
    if isinstance(part, TextIn):
        return message_pb2.Part(text=message_pb2.Text(text=part.text))
    source = part.source
    if isinstance(source, UrlImage):
        return message_pb2.Part(image=message_pb2.Image(url=source.url))
    try:
        data = base64.b64decode(source.data, validate=True)
    except (binascii.Error, ValueError):
        raise invalid((*loc, "source", "data"), "Input should be base64") from None
    image = message_pb2.Image(data=data, media_type=source.media_type, detail=source.detail or "")
    return message_pb2.Part(image=image)


def client_tools(given: Sequence[ClientToolIn] | None) -> list[tool_pb2.ClientTool]:
    """Tools that the client runs, or 422."""
    return [_client_tool(tool, ("body", "client_tools", index)) for index, tool in enumerate(given or ())]


def _client_tool(given: ClientToolIn, loc: tuple[str | int, ...]) -> tool_pb2.ClientTool:
    tool = tool_pb2.ClientTool(name=given.name, description=given.description or "")
    if given.parameters:
        fill(tool.parameters, given.parameters, (*loc, "parameters"))
    return tool


def fill(struct: PbStruct, values: dict[str, Any], loc: tuple[str | int, ...]) -> None:
    """Put a JSON object into a Struct, or 422: it may be nested too deeply, or hold a number that has no double."""
    if _depth(values) > _MAX_DEPTH:
        raise invalid(loc, f"Input should be nested at most {_MAX_DEPTH} levels deep")
    try:
        struct.update(values)
    except (ValueError, OverflowError):
        raise invalid(loc, "Input should be a plain JSON object") from None


def _depth(value: Any) -> int:
    """How many levels of objects and lists. The decoder bounds how deep this can go."""
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list):
        return 0
    return 1 + max((_depth(each) for each in value), default=0)
