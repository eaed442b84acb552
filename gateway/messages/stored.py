"""Stored messages as objects of the wire. One stored message may become several objects, which share its id."""

from __future__ import annotations

import base64
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from common.pb.bridle.v1 import message_pb2
from gateway.messages import model

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from google.protobuf.timestamp_pb2 import Timestamp

_Role = message_pb2.Message
_SUCCEEDED: Final = message_pb2.ToolReturn.OUTCOME_SUCCEEDED
_LOW_BITS: Final = 127


def date(seconds: int) -> str:
    """A moment with the precision that messages have."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def now() -> str:
    """This moment, with the precision that messages have."""
    return datetime.now(UTC).replace(microsecond=0).isoformat()


def moment(stamp: Timestamp) -> str:
    """A moment in full precision."""
    return stamp.ToDatetime(tzinfo=UTC).isoformat()


def otid(message_id: str, index: int) -> str:
    """The id of one object of a message: the message's own, with its place in the low bits."""
    try:
        base = uuid.UUID(message_id.partition("-")[2]).int
    except ValueError:
        return f"{message_id}-{index}"
    return str(uuid.UUID(int=base & ~_LOW_BITS | index & _LOW_BITS))


def system_message_id(conversation_id: str) -> str:
    """The id under which the system prompt is shown as the first message of a conversation."""
    return f"message-{conversation_id.partition('-')[2]}"


def objects(
    message: message_pb2.Message, *, seq_id: int | None = None, summaries: bool = False
) -> list[model.LettaMessage]:
    """What a stored message is on the wire. Summaries are shown as what a user said unless they are asked for."""
    common: dict[str, Any] = {
        "id": message.id,
        "date": date(message.create_time.seconds),
        "step_id": message.step_id or None,
        "run_id": message.run_id or None,
        "seq_id": seq_id,
    }
    if message.role == _Role.ROLE_SUMMARY and summaries:
        return [model.SummaryMessage(summary=_text(message.parts), **common)]
    return _KINDS[message.role](message, common)


def of_many(messages: Iterable[message_pb2.Message]) -> list[model.LettaMessage]:
    """All of them, in order."""
    return [each for message in messages for each in objects(message)]


def _system(message: message_pb2.Message, common: dict[str, Any]) -> list[model.LettaMessage]:
    return [model.SystemMessage(content=_text(message.parts), otid=_own_otid(message), **common)]


def _user(message: message_pb2.Message, common: dict[str, Any]) -> list[model.LettaMessage]:
    common["name"] = message.name or None
    return [model.UserMessage(content=content(message.parts), otid=_own_otid(message), **common)]


def _own_otid(message: message_pb2.Message) -> str:
    return message.otid or message.id.partition("-")[2]


def _assistant(message: message_pb2.Message, common: dict[str, Any]) -> list[model.LettaMessage]:
    found: list[model.LettaMessage] = []
    free: list[tuple[int, message_pb2.ToolCall]] = []
    waiting: list[tuple[int, message_pb2.ToolCall]] = []
    for index, part in enumerate(message.parts):
        match part.WhichOneof("part"):
            case "text":
                found.append(model.AssistantMessage(content=part.text.text, otid=otid(message.id, index), **common))
            case "reasoning":
                found.append(_reasoning(part.reasoning, otid(message.id, index), common))
            case "tool_call":
                (waiting if part.tool_call.needs_approval else free).append((index, part.tool_call))
    if free:
        found.append(_calls(model.ToolCallMessage, message.id, free, common))
    if waiting:
        found.append(_calls(model.ApprovalRequestMessage, message.id, waiting, common))
    return found


def _reasoning(part: message_pb2.Reasoning, own: str, common: dict[str, Any]) -> model.LettaMessage:
    if part.redacted and not part.text:
        return model.HiddenReasoningMessage(hidden_reasoning=part.redacted, otid=own, **common)
    return model.ReasoningMessage(reasoning=part.text, signature=part.signature or None, otid=own, **common)


def _calls(
    kind: type[model.ToolCallMessage | model.ApprovalRequestMessage],
    message_id: str,
    calls: list[tuple[int, message_pb2.ToolCall]],
    common: dict[str, Any],
) -> model.LettaMessage:
    shown = [call_object(call) for _, call in calls]
    return kind(tool_call=shown[0], tool_calls=shown, otid=otid(message_id, calls[0][0]), **common)


def call_object(call: message_pb2.ToolCall) -> model.ToolCall:
    """A whole call."""
    return model.ToolCall(call.name, call.arguments, call.id)


def _tool(message: message_pb2.Message, common: dict[str, Any]) -> list[model.LettaMessage]:
    returns = [part.tool_return for part in message.parts]
    if not returns:
        return []
    first = return_object(returns[0])
    return [
        model.ToolReturnMessage(
            tool_return=_flat(returns[0].content),
            status=first.status,
            tool_call_id=first.tool_call_id,
            stdout=first.stdout,
            stderr=first.stderr,
            tool_returns=[return_object(each) for each in returns],
            otid=otid(message.id, 0),
            **{**common, "name": returns[0].tool_name or None},
        )
    ]


def return_object(result: message_pb2.ToolReturn, *, flat: bool = False) -> model.ToolReturn:
    """What came of a call; `flat`: images are only mentioned."""
    pictures = any(part.HasField("image") for part in result.content)
    return model.ToolReturn(
        tool_call_id=result.tool_call_id,
        tool_return=content(result.content) if pictures and not flat else _flat(result.content),
        status="success" if result.outcome == _SUCCEEDED else "error",
        stdout=list(result.stdout) or None,
        stderr=list(result.stderr) or None,
    )


def _approval(message: message_pb2.Message, common: dict[str, Any]) -> list[model.LettaMessage]:
    approvals = [_decision(part.decision) for part in message.parts]
    first = next((each for each in approvals if isinstance(each, model.ApprovalReturn)), None)
    return [
        model.ApprovalResponseMessage(
            approvals=approvals,
            approve=first.approve if first else None,
            approval_request_id=first.tool_call_id if first else None,
            reason=first.reason if first else None,
            **common,
        )
    ]


def _decision(decision: message_pb2.Decision) -> model.ApprovalReturn | model.ToolReturn:
    match decision.WhichOneof("verdict"):
        case "result":
            return return_object(decision.result, flat=True)
        case "deny":
            return model.ApprovalReturn(decision.tool_call_id, approve=False, reason=decision.deny.reason or None)
        case _:
            return model.ApprovalReturn(decision.tool_call_id, approve=True)


def content(parts: Iterable[message_pb2.Part]) -> model.Content:
    """A text as a string; anything else as a list."""
    found = list(_pieces(parts))
    if len(found) == 1 and isinstance(found[0], model.TextPart):
        return found[0].text
    return found


def _pieces(parts: Iterable[message_pb2.Part]) -> Iterator[model.TextPart | model.ImagePart]:
    for part in parts:
        if part.HasField("text"):
            yield model.TextPart(part.text.text)
        elif part.HasField("image"):
            yield model.ImagePart(_source(part.image))


def _source(image: message_pb2.Image) -> model.Base64Image | model.UrlImage:
    if image.url:
        return model.UrlImage(image.url)
    return model.Base64Image(image.media_type, base64.b64encode(image.data).decode(), image.detail or None)


def _text(parts: Iterable[message_pb2.Part]) -> str:
    return "\n".join(part.text.text for part in parts if part.HasField("text"))


def _flat(parts: Iterable[message_pb2.Part]) -> str:
    """The texts, and a word about images, for the places where the wire has only a string."""
    parts = list(parts)
    pictures = sum(part.HasField("image") for part in parts)
    omitted = "[Image omitted]" if pictures == 1 else f"[{pictures} images omitted]"
    text = _text(parts)
    if not pictures:
        return text
    return f"{text}\n{omitted}" if text else omitted


_KINDS: Final[dict[int, Callable[[message_pb2.Message, dict[str, Any]], list[model.LettaMessage]]]] = {
    _Role.ROLE_UNSPECIFIED: lambda *_: [],
    _Role.ROLE_SYSTEM: _system,
    _Role.ROLE_USER: _user,
    _Role.ROLE_SUMMARY: _user,
    _Role.ROLE_ASSISTANT: _assistant,
    _Role.ROLE_TOOL: _tool,
    _Role.ROLE_APPROVAL: _approval,
}
