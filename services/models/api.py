"""What the engine knows of models: a provider is `stream(request) -> events`, and can say what it would send."""

from collections.abc import AsyncGenerator
from enum import StrEnum
from typing import Any, Protocol

from msgspec import Struct

from services.agents.model import ModelSettings
from services.messages.model import Part, Role
from services.runs.model import Usage


class ContextMessage(Struct, frozen=True):
    """A message as the model is shown it."""

    role: Role
    parts: tuple[Part, ...]


class ToolSpec(Struct, frozen=True):
    """A tool as the model is shown it."""

    name: str
    description: str
    parameters: dict[str, Any]


class Watch(Protocol):
    """Looks over the shoulder of a call: what is really sent, what comes back, and what of it a cut call has cost.

    A call that is tried again begins again with `sent`.
    """

    def sent(self, body: bytes, secret: str) -> None:
        """This goes out. The secret must not be repeated to anybody."""
        ...

    def received(self, data: bytes) -> None:
        """This came back; also the body of a refusal."""
        ...

    def ended(self, usage: Usage | None, *, refused: bool, whole: bool) -> None:
        """It is over. Usage is what the provider has told so far, all of it if the turn is `whole`.

        `refused`: it never began to answer.
        """
        ...


class ModelRequest(Struct, frozen=True):
    """One call. `forced` demands a tool call: of the only tool if there is one, else of any."""

    model: str
    system: str
    messages: tuple[ContextMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    forced: bool = False
    parallel: bool = True
    settings: ModelSettings = ModelSettings()
    # Who wants to know how it went, apart from its events.
    watch: Watch | None = None


class Finish(StrEnum):
    """Why the model stopped writing."""

    STOP = "stop"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    REFUSAL = "refusal"


class TextChunk(Struct, frozen=True):
    """A piece of text."""

    text: str


class ReasoningChunk(Struct, frozen=True, omit_defaults=True):
    """A piece of reasoning; signature and sealed content come whole."""

    text: str = ""
    signature: str = ""
    redacted: str = ""


class CallStarted(Struct, frozen=True):
    """A tool call begins. `index` tells the calls of a turn apart while they arrive."""

    index: int
    id: str
    name: str


class CallArguments(Struct, frozen=True):
    """A piece of a tool call's arguments."""

    index: int
    text: str


class Finished(Struct, frozen=True):
    """The turn is over. Usage is None if the provider did not say."""

    finish: Finish
    usage: Usage | None = None


ModelEvent = TextChunk | ReasoningChunk | CallStarted | CallArguments | Finished


class Provider(Protocol):
    """A way to reach models. Closing the iterator, or cancelling its task, closes the connection."""

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """One turn of the model. Raises ModelError."""
        ...

    def preview(self, request: ModelRequest) -> bytes:
        """The body that `stream` would send, byte for byte. Nothing is sent, and nothing secret is in it."""
        ...


class Models(Protocol):
    """Finds the provider of a handle `provider/name`, for an organization."""

    async def knows(self, organization_id: str, handle: str) -> bool:
        """Whether its agents may name this handle."""
        ...

    async def resolve(self, organization_id: str, handle: str) -> tuple[Provider, str]:
        """The provider and the name it knows the model by. Raises ModelError if there is none."""
        ...
