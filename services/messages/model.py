"""What a message is. Values only: no storage, no transport."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct


class Role(StrEnum):
    """Whose entry of the log it is."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    APPROVAL = "approval"
    SUMMARY = "summary"


class Outcome(StrEnum):
    """How a tool call ended; every call has exactly one."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    DENIED = "denied"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class Text(Struct, frozen=True, tag="text"):
    """Text."""

    text: str


class Image(Struct, frozen=True, tag="image", omit_defaults=True):
    """A picture, by its bytes or by an address."""

    data: bytes | None = None
    url: str = ""
    media_type: str = ""
    detail: str = ""


class Reasoning(Struct, frozen=True, tag="reasoning", omit_defaults=True):
    """The model's reasoning, kept so that it can be passed back to the provider."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class ToolCall(Struct, frozen=True, tag="tool_call", omit_defaults=True):
    """A tool call by the model; `arguments` is JSON exactly as the model wrote it."""

    id: str
    name: str
    arguments: str
    needs_approval: bool = False


class ToolReturn(Struct, frozen=True, tag="tool_return", omit_defaults=True):
    """What came of a tool call."""

    call_id: str
    name: str
    outcome: Outcome
    content: tuple[Text | Image, ...] = ()
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The textual part, which is what tool rules compare."""
        return "\n".join(part.text for part in self.content if isinstance(part, Text))


class Approve(Struct, frozen=True, tag="approve"):
    """Run the call as it stands."""


class Deny(Struct, frozen=True, tag="deny", omit_defaults=True):
    """Do not run the call; the model is told the reason."""

    reason: str | None = None


class Result(Struct, frozen=True, tag="result"):
    """Do not run the call here: this is what it returned where the client ran it."""

    value: ToolReturn


Verdict = Approve | Deny | Result


class Decision(Struct, frozen=True, tag="decision"):
    """What was decided about one tool call."""

    call_id: str
    verdict: Verdict


Part = Text | Image | Reasoning | ToolCall | ToolReturn | Decision


class Body(Struct, frozen=True, omit_defaults=True):
    """The stored content of a message."""

    parts: tuple[Part, ...]
    name: str = ""
    otid: str = ""
    interrupted: bool = False


class InputMessage(Struct, frozen=True, omit_defaults=True):
    """A message from a caller."""

    parts: tuple[Text | Image, ...]
    role: Role = Role.USER
    name: str = ""
    otid: str = ""


class NewMessage(Struct, frozen=True):
    """A message that is about to be added to its conversation; the log gives it its position."""

    id: str
    role: Role
    body: Body
    step_id: str = ""


class InContext(Struct, frozen=True):
    """A message that the model is shown, and its place in the log."""

    id: str
    seq: int
    role: Role
    body: Body


class Message(Struct, frozen=True):
    """A message as it is stored."""

    id: str
    organization_id: str
    agent_id: str
    conversation_id: str
    seq: int
    run_id: str
    step_id: str
    role: Role
    body: Body
    created_at: datetime
