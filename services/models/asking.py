"""Asks a vendor which models it has, through its SDK."""

from typing import Any

import anthropic
import msgspec
import openai
from msgspec import Struct

from services.models import catalog
from services.models.catalog import ModelInfo
from services.models.errors import ModelError, ModelErrorType
from services.models.failures import quotable

# A proxy may list some hundreds; nobody lists as many as this.
_MOST_PAGES = 10
_PAGE = 1000
_ONCE: Any = {"max_retries": 0}


class _Supported(Struct):
    supported: bool = False


class _Capabilities(Struct):
    image_input: _Supported | None = None
    thinking: _Supported | None = None


class _Entry(Struct):
    """One model. The window has a name of its own at every vendor that tells it."""

    id: str
    max_model_len: int | None = None
    context_length: int | None = None
    context_window: int | None = None
    max_context_length: int | None = None
    max_input_tokens: int | None = None
    lifecycle: str = ""
    capabilities: _Capabilities | None = None

    def info(self) -> ModelInfo:
        """As a list shows it: the vendor's word counts more than ours."""
        window = (
            self.max_model_len
            or self.context_length
            or self.context_window
            or self.max_context_length
            or self.max_input_tokens
        )
        info = catalog.describe(self.id, window)
        if self.capabilities is not None:
            sees, thinks = self.capabilities.image_input, self.capabilities.thinking
            info = msgspec.structs.replace(
                info,
                images=sees.supported if sees is not None else info.images,
                reasoning=thinks.supported if thinks is not None else info.reasoning,
            )
        return info


class _Page(Struct):
    data: list[_Entry]
    has_more: bool = False
    last_id: str | None = None


async def openai_models(client: openai.AsyncOpenAI, *, own: bool) -> list[ModelInfo]:
    """The models of a server that speaks OpenAI's APIs. `own`: OpenAI's, which lists more than one can talk to."""
    try:
        page = _read(await client.get("/models", cast_to=object, options=_ONCE))
    except openai.OpenAIError as error:
        raise _unlisted(error, client.api_key) from None
    return [entry.info() for entry in page.data if not own or catalog.talks(entry.id)]


async def anthropic_models(client: anthropic.AsyncAnthropic) -> list[ModelInfo]:
    """The models of a server that speaks Anthropic's API."""
    found: list[ModelInfo] = []
    query: dict[str, object] = {"limit": _PAGE}
    try:
        for _ in range(_MOST_PAGES):
            options: Any = {**_ONCE, "params": query}
            page = _read(await client.get("/v1/models", cast_to=object, options=options))
            found += [entry.info() for entry in page.data if entry.lifecycle != "retired"]
            if not page.has_more or not page.last_id:
                break
            query = {**query, "after_id": page.last_id}
    except anthropic.AnthropicError as error:
        raise _unlisted(error, client.api_key or client.auth_token or "") from None
    return found


def _read(answer: object) -> _Page:
    try:
        return msgspec.convert(answer, _Page)
    except msgspec.ValidationError as error:
        raise _unlisted(error, "") from None


def _unlisted(error: Exception, secret: str) -> ModelError:
    return ModelError(ModelErrorType.ERROR, "The provider did not list its models.", quotable(str(error), secret))
