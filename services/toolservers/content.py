"""What tool servers return, made fit to be kept and shown to a model."""

from collections.abc import Iterable
from typing import Final

from common.pb.bridle.v1 import message_pb2
from services.messages.model import Image, Outcome, Text
from services.toolservers.api import Answer, ServerFailed

_IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MAX_IMAGE: Final = 5 * 1024 * 1024
_MAX_OUTPUT: Final = 64 * 1024

Content = Text | Image


def answer_from_pb(result: message_pb2.ToolReturn) -> Answer:
    """The result of a ToolExecutor."""
    match result.outcome:
        case message_pb2.ToolReturn.OUTCOME_SUCCEEDED:
            outcome = Outcome.SUCCEEDED
        case message_pb2.ToolReturn.OUTCOME_FAILED:
            outcome = Outcome.FAILED
        case _:
            raise ServerFailed("broken", "answered with an outcome that is neither SUCCEEDED nor FAILED")
    return Answer(
        outcome,
        tuple(_part(part) for part in result.content),
        _output(result.stdout),
        _output(result.stderr),
    )


def _part(part: message_pb2.Part) -> Content:
    match part.WhichOneof("part"):
        case "text":
            return text(part.text.text)
        case "image" if part.image.WhichOneof("source") == "url":
            return _linked(part.image.url, part.image.media_type)
        case "image":
            return image(part.image.data, part.image.media_type)
        case other:
            raise ServerFailed("broken", f"answered with {other or 'nothing'} where only text and images are allowed")


def text(value: str) -> Text:
    """Text, without what Postgres cannot store."""
    return Text(value.replace("\0", ""))


def image(data: bytes, media_type: str) -> Content:
    """A picture, or what is said in place of one that cannot be shown."""
    if media_type in _IMAGE_TYPES and 0 < len(data) <= _MAX_IMAGE:
        return Image(data=data, media_type=media_type)
    return left_out(len(data), media_type)


def _linked(url: str, media_type: str) -> Content:
    return Image(url=url, media_type=media_type) if url.startswith("https://") else text(url)


def left_out(size: int, media_type: str) -> Text:
    """What is said in place of data that cannot be shown."""
    return text(f"[{size} bytes of {media_type[:100] or 'an unknown type'}, which cannot be shown]")


def _output(lines: Iterable[str]) -> tuple[str, ...]:
    kept: list[str] = []
    room = _MAX_OUTPUT
    for line in lines:
        kept.append(line.replace("\0", "")[:room])
        room -= len(kept[-1])
        if room <= 0:
            break
    return tuple(kept)
