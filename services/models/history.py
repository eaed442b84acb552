"""The log as every vendor wants it: who spoke, and every tool call directly followed by its return."""

import msgspec
from msgspec import Struct

from services.messages.model import Image, Outcome, Reasoning, Role, Text, ToolCall, ToolReturn
from services.models.api import ContextMessage

# What a provider sealed only it can read. These marks, at the front of a signature, say whose it is; Anthropic's own
# signatures have none.
RESPONSES_MARK = "openai:"
CHAT_MARK = "chat:"

_SUMMARY = "[Summary of the conversation so far]\n"
_LOST = "[The outcome of this call was not recorded.]"
_NO_IMAGE = "[An image was here that this model cannot be shown.]"
_IMAGE_TYPES = frozenset({"", "image/png", "image/jpeg", "image/gif", "image/webp"})

Shown = Text | Image
Written = Text | Reasoning | ToolCall


class Said(Struct, frozen=True):
    """A person's words, or the application's (`by_system`)."""

    content: tuple[Shown, ...]
    by_system: bool = False


class Wrote(Struct, frozen=True):
    """The model's own turn."""

    parts: tuple[Written, ...]

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls of the turn."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))


class Returned(Struct, frozen=True):
    """What the calls of the turn before have returned, in the order of the calls."""

    returns: tuple[ToolReturn, ...]


Turn = Said | Wrote | Returned


def turns(messages: tuple[ContextMessage, ...]) -> list[Turn]:
    """What was said, by turns. Decisions about calls are not shown to models."""
    found: list[Turn] = []
    calls: dict[str, int] = {}
    place, returns = 0, list[ToolReturn]()
    for message in messages:
        match message.role:
            case Role.ASSISTANT:
                wrote = Wrote(tuple(part for part in message.parts if isinstance(part, Text | Reasoning | ToolCall)))
                found.append(wrote)
                if wrote.calls:
                    calls = {call.id: index for index, call in enumerate(wrote.calls)}
                    place, returns = len(found), [_lost(call) for call in wrote.calls]
                    found.append(Returned(tuple(returns)))
            case Role.TOOL:
                for part in message.parts:
                    if isinstance(part, ToolReturn) and part.call_id in calls:
                        returns[calls[part.call_id]] = part
                        found[place] = Returned(tuple(returns))
            case Role.USER | Role.SYSTEM | Role.SUMMARY:
                found += _said(message)
            case Role.APPROVAL:
                pass
    return found


def shown_image(image: Image) -> Image | Text:
    """The image, or what stands for it where no vendor takes its kind."""
    return image if (image.data or image.url) and image.media_type in _IMAGE_TYPES else Text(_NO_IMAGE)


def without_images(content: tuple[Shown, ...]) -> str:
    """Content for a place where a vendor takes only text."""
    return "\n".join(part.text if isinstance(part, Text) else _NO_IMAGE for part in content)


def from_system(content: tuple[Shown, ...]) -> str:
    """The application's words as a user's, for servers that take those of the system only at the very beginning."""
    return f"<system>\n{without_images(content)}\n</system>"


def arguments_json(call: ToolCall) -> str:
    """The arguments as the model wrote them. Vendors refuse what is not an object, so broken ones are quoted in one."""
    try:
        msgspec.json.decode(call.arguments, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeError):
        return msgspec.json.encode({"invalid_json": call.arguments}).decode() if call.arguments else "{}"
    return call.arguments


def _said(message: ContextMessage) -> list[Turn]:
    content = tuple(part for part in message.parts if isinstance(part, Text | Image))
    if message.role is Role.SUMMARY:
        content = (Text(_SUMMARY + without_images(content)),)
    return [Said(content, by_system=message.role is Role.SYSTEM)] if content else []


def _lost(call: ToolCall) -> ToolReturn:
    return ToolReturn(call.id, call.name, Outcome.UNKNOWN, (Text(_LOST),))
