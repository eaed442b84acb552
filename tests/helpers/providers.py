"""Our providers against the fake one, through the vendors' real clients."""

from collections.abc import Iterable

import httpx2

from services.fakellm.scripts import Api
from services.fakellm.server import FakeLlm
from services.messages.model import Part, Role, Text
from services.models.api import (
    CallArguments,
    ContextMessage,
    ModelEvent,
    ModelRequest,
    Provider,
    ReasoningChunk,
    TextChunk,
    ToolSpec,
)
from services.models.environment import Credentials, anthropic_source, openai_source
from services.models.errors import ModelError

KEY = "sk-secret-1234567890"
TOOLS = tuple(ToolSpec(name, f"The tool {name}.", {"type": "object", "properties": {}}) for name in ("add", "look_up"))


def provider_of(api: Api, fake: FakeLlm, http: httpx2.AsyncClient) -> Provider:
    """The provider that speaks this API, talking to the fake."""
    if api is Api.MESSAGES:
        return anthropic_source(Credentials(fake.anthropic_base_url, KEY), http).provider
    return openai_source(Credentials(fake.openai_base_url, KEY), http, responses=api is Api.RESPONSES).provider


def user(text: str) -> ContextMessage:
    """What a person says."""
    return ContextMessage(Role.USER, (Text(text),))


def wrote(*parts: Part) -> ContextMessage:
    """What the model has written."""
    return ContextMessage(Role.ASSISTANT, parts)


def ask(*messages: ContextMessage, model: str = "gpt-5", **options: object) -> ModelRequest:
    """A request with two tools."""
    values: dict[str, object] = {"system": "Be brief.", "tools": TOOLS, **options}
    return ModelRequest(model=model, messages=messages or (user("hello"),), **values)  # type: ignore[arg-type]


async def collect(provider: Provider, request: ModelRequest) -> tuple[list[ModelEvent], ModelError | None]:
    """All events of a call, and how it failed if it did."""
    events: list[ModelEvent] = []
    try:
        async for event in provider.stream(request):
            events.append(event)  # noqa: PERF401 - what came before a failure counts
    except ModelError as error:
        return events, error
    return events, None


def merged(events: Iterable[ModelEvent]) -> list[ModelEvent]:
    """The events with neighbours joined: what is left when it does not matter where the model drew breath."""
    found: list[ModelEvent] = []
    for event in events:
        match found[-1] if found else None, event:
            case TextChunk(text=before), TextChunk(text=text):
                found[-1] = TextChunk(before + text)
            case ReasoningChunk(text=before, signature="", redacted=""), ReasoningChunk():
                found[-1] = ReasoningChunk(before + event.text, event.signature, event.redacted)
            case CallArguments(index=one, text=before), CallArguments(index=other, text=text) if one == other:
                found[-1] = CallArguments(one, before + text)
            case _:
                found.append(event)
    return found
