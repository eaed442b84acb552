"""Checks of what callers say. Each yields what is wrong, so that a request can be told everything at once."""

from collections.abc import Sequence

from common.errors import FieldViolation
from common.pb.bridle.v1 import message_pb2
from services.wire import checks
from services.wire.checks import Found

_ROLES = (
    message_pb2.Message.ROLE_UNSPECIFIED,
    message_pb2.Message.ROLE_USER,
    message_pb2.Message.ROLE_SYSTEM,
)
_OUTCOMES = (message_pb2.ToolReturn.OUTCOME_SUCCEEDED, message_pb2.ToolReturn.OUTCOME_FAILED)
_IMAGE_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAX_TEXT = 1024 * 1024
_MAX_IMAGE = 5 * 1024 * 1024
_MAX_REASON = 4096


def inputs(field: str, messages: Sequence[message_pb2.InputMessage], *, least: int = 1, most: int = 100) -> Found:
    """The messages of a request."""
    if not least <= len(messages) <= most:
        yield FieldViolation(field, f"must have {least} to {most} messages")
    for number, message in enumerate(messages):
        path = f"{field}[{number}]"
        if message.role not in _ROLES:
            yield FieldViolation(f"{path}.role", "must be USER or SYSTEM")
        yield from checks.text(f"{path}.name", message.name, most=64)
        yield from checks.text(f"{path}.otid", message.otid, most=128)
        if not message.parts:
            yield FieldViolation(f"{path}.parts", "must have at least one part")
        yield from content(f"{path}.parts", message.parts)


def content(field: str, parts: Sequence[message_pb2.Part]) -> Found:
    """Text and images, and nothing else."""
    for number, part in enumerate(parts):
        path = f"{field}[{number}]"
        match part.WhichOneof("part"):
            case "text":
                yield from checks.size_in_bytes(f"{path}.text", part.text.text, _MAX_TEXT)
                yield from checks.storable(f"{path}.text", part.text.text)
            case "image":
                yield from _image(f"{path}.image", part.image)
            case _:
                yield FieldViolation(path, "must be text or an image")


def _image(field: str, image: message_pb2.Image) -> Found:
    match image.WhichOneof("source"):
        case "data":
            if len(image.data) > _MAX_IMAGE:
                yield FieldViolation(f"{field}.data", f"must have at most {_MAX_IMAGE:,} bytes")
            if image.media_type not in _IMAGE_TYPES:
                yield FieldViolation(f"{field}.media_type", f"must be one of {', '.join(_IMAGE_TYPES)}")
        case "url":
            if not image.url.startswith("https://"):
                yield FieldViolation(f"{field}.url", "must be an https address")
        case _:
            yield FieldViolation(field, "must have data or url")


def decisions(field: str, given: Sequence[message_pb2.Decision]) -> Found:
    """The decisions of an answer."""
    if not given:
        yield FieldViolation(field, "must have at least one decision")
    for number, decision in enumerate(given):
        path = f"{field}[{number}]"
        yield from checks.text(f"{path}.tool_call_id", decision.tool_call_id, least=1, most=256)
        match decision.WhichOneof("verdict"):
            case "approve":
                pass
            case "deny":
                yield from checks.size_in_bytes(f"{path}.deny.reason", decision.deny.reason, _MAX_REASON)
            case "result":
                yield from _result(f"{path}.result", decision)
            case _:
                yield FieldViolation(path, "must approve, deny or give a result")


def _result(field: str, decision: message_pb2.Decision) -> Found:
    result = decision.result
    if result.tool_call_id not in ("", decision.tool_call_id):
        yield FieldViolation(f"{field}.tool_call_id", "must be the decision's")
    if result.outcome not in _OUTCOMES:
        yield FieldViolation(f"{field}.outcome", "must be SUCCEEDED or FAILED")
    yield from content(f"{field}.content", result.content)
