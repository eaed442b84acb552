"""Messages between protobuf and the domain."""

from datetime import UTC, datetime
from typing import Any

from google.protobuf.timestamp_pb2 import Timestamp

from common.pb.bridle.v1 import message_pb2
from services.messages.model import (
    Approve,
    Decision,
    Deny,
    Image,
    InputMessage,
    Message,
    Outcome,
    Part,
    Reasoning,
    Result,
    Role,
    Text,
    ToolCall,
    ToolReturn,
    Verdict,
)
from services.wire.wellknown import enum_number, enum_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROLES = {role: enum_number(message_pb2.Message.Role, "ROLE_", role) for role in Role}
_OUTCOMES = {outcome: enum_number(message_pb2.ToolReturn.Outcome, "OUTCOME_", outcome) for outcome in Outcome}


def timestamp(moment: datetime) -> Timestamp:
    """An instant. The library's own conversion goes through time tuples, and there is one in every event."""
    since = moment - _EPOCH
    return Timestamp(seconds=since.days * 86_400 + since.seconds, nanos=since.microseconds * 1000)


def message_to_pb(message: Message) -> message_pb2.Message:
    """A stored message."""
    return message_pb2.Message(
        id=message.id,
        agent_id=message.agent_id,
        conversation_id=message.conversation_id,
        seq=message.seq,
        run_id=message.run_id,
        step_id=message.step_id,
        role=_ROLES[message.role],
        parts=[part_to_pb(part) for part in message.body.parts],
        name=message.body.name,
        otid=message.body.otid,
        interrupted=message.body.interrupted,
        create_time=timestamp(message.created_at),
    )


def part_to_pb(part: Part) -> message_pb2.Part:
    """A piece of a message."""
    match part:
        case Text(text=text):
            return message_pb2.Part(text=message_pb2.Text(text=text))
        case Image():
            return message_pb2.Part(image=_image_to_pb(part))
        case Reasoning(text=text, signature=signature, redacted=redacted):
            return message_pb2.Part(reasoning=message_pb2.Reasoning(text=text, signature=signature, redacted=redacted))
        case ToolCall():
            return message_pb2.Part(tool_call=call_to_pb(part))
        case ToolReturn():
            return message_pb2.Part(tool_return=return_to_pb(part))
        case Decision():
            return message_pb2.Part(decision=decision_to_pb(part))


def _image_to_pb(image: Image) -> message_pb2.Image:
    source: dict[str, Any] = {"url": image.url} if image.url else {"data": image.data or b""}
    return message_pb2.Image(media_type=image.media_type, detail=image.detail, **source)


def call_to_pb(call: ToolCall) -> message_pb2.ToolCall:
    """A tool call."""
    return message_pb2.ToolCall(
        id=call.id, name=call.name, arguments=call.arguments, needs_approval=call.needs_approval
    )


def return_to_pb(result: ToolReturn) -> message_pb2.ToolReturn:
    """What came of a tool call."""
    return message_pb2.ToolReturn(
        tool_call_id=result.call_id,
        tool_name=result.name,
        outcome=_OUTCOMES[result.outcome],
        content=[part_to_pb(part) for part in result.content],
        stdout=result.stdout,
        stderr=result.stderr,
    )


def decision_to_pb(decision: Decision) -> message_pb2.Decision:
    """What was decided about a tool call."""
    match decision.verdict:
        case Approve():
            return message_pb2.Decision(tool_call_id=decision.call_id, approve=message_pb2.Approve())
        case Deny(reason=reason):
            return message_pb2.Decision(tool_call_id=decision.call_id, deny=message_pb2.Deny(reason=reason or ""))
        case Result(value=value):
            return message_pb2.Decision(tool_call_id=decision.call_id, result=return_to_pb(value))


def decision_from_pb(decision: message_pb2.Decision) -> Decision:
    """A checked decision."""
    return Decision(decision.tool_call_id, _verdict_from_pb(decision))


def _verdict_from_pb(decision: message_pb2.Decision) -> Verdict:
    match decision.WhichOneof("verdict"):
        case "approve":
            return Approve()
        case "deny":
            return Deny(decision.deny.reason or None)
        case _:
            return Result(_return_from_pb(decision.result, decision.tool_call_id))


def _return_from_pb(result: message_pb2.ToolReturn, call_id: str) -> ToolReturn:
    return ToolReturn(
        call_id=result.tool_call_id or call_id,
        name=result.tool_name,
        outcome=Outcome(enum_text(message_pb2.ToolReturn.Outcome, "OUTCOME_", result.outcome)),
        content=tuple(_content_from_pb(part) for part in result.content),
        stdout=tuple(result.stdout),
        stderr=tuple(result.stderr),
    )


def input_from_pb(message: message_pb2.InputMessage) -> InputMessage:
    """A checked message of a caller."""
    role = enum_text(message_pb2.Message.Role, "ROLE_", message.role) if message.role else Role.USER
    return InputMessage(
        parts=tuple(_content_from_pb(part) for part in message.parts),
        role=Role(role),
        name=message.name,
        otid=message.otid,
    )


def _content_from_pb(part: message_pb2.Part) -> Text | Image:
    if part.WhichOneof("part") == "text":
        return Text(part.text.text)
    image = part.image
    if image.WhichOneof("source") == "url":
        return Image(url=image.url, media_type=image.media_type, detail=image.detail)
    return Image(data=image.data, media_type=image.media_type, detail=image.detail)
