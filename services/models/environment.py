"""The providers that the standard variables of the SDKs stand for."""

from collections.abc import AsyncGenerator, Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import anthropic
import httpx2
import msgspec
import openai
from msgspec import Struct
from msgspec.structs import replace

from services.models import anthropic_messages, catalog, openai_chat, openai_responses
from services.models.anthropic_messages import AnthropicProvider
from services.models.api import ModelEvent, ModelRequest, Provider
from services.models.asking import anthropic_models, openai_models
from services.models.errors import ModelError, ModelErrorType
from services.models.http import AnthropicEndpoint, OpenAIEndpoint
from services.models.limits import Limited
from services.models.metrics import Measured, ModelMetrics
from services.models.openai_chat import ChatProvider
from services.models.openai_responses import ResponsesProvider
from services.models.retry import Retrying
from services.models.sources import Source

OPENAI_URL: Final = "https://api.openai.com/v1"
ANTHROPIC_URL: Final = "https://api.anthropic.com"

# Servers on one's own machine want no key, but the SDKs do.
_NO_KEY = "none"

# Others that speak Chat Completions, there if one of their variables is: NAME_BASE_URL or NAME_API_KEY.
_COMPATIBLE = {
    "lmstudio": "http://127.0.0.1:1234/v1",
    "ollama": "http://127.0.0.1:11434/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "vllm": "http://127.0.0.1:8000/v1",
}


class Credentials(Struct, frozen=True):
    """Where a provider is and how to be let in."""

    base_url: str
    api_key: str = ""
    auth_token: str = ""
    organization: str = ""
    project: str = ""


class Unconfigured:
    """A provider that nobody gave a key to."""

    def __init__(self, message: str, body: Callable[[ModelRequest], dict[str, Any]]) -> None:
        self._message = message
        self._body = body

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Says what is missing."""
        raise ModelError(ModelErrorType.AUTHENTICATION, self._message)

    def preview(self, request: ModelRequest) -> bytes:
        """What would be sent with a key."""
        return msgspec.json.encode(self._body(request))


def providers(
    environ: Mapping[str, str], http: httpx2.AsyncClient, metrics: ModelMetrics, openai_api: str = "auto"
) -> dict[str, Source]:
    """Every provider by the name before the slash of a handle. Each takes any model name.

    `openai_api` is which of its two APIs OpenAI's address is spoken to by: `responses`, `chat`, or `auto`, the first
    for OpenAI itself and the second for whoever is compatible.
    """
    found = {"openai": _openai(environ, http, openai_api), "anthropic": _anthropic(environ, http)}
    for name, default in _COMPATIBLE.items():
        url, key = _get(environ, f"{name.upper()}_BASE_URL"), _get(environ, f"{name.upper()}_API_KEY")
        if url or key:
            found[name] = openai_source(Credentials(url or default, key), http, responses=False)
    return {name: guarded(source, metrics, name) for name, source in found.items()}


def guarded(source: Source, metrics: ModelMetrics, label: str) -> Source:
    """A source whose calls are repeated where that helps, end in time, and are counted."""
    retrying = Retrying(source.provider, on_retry=metrics.retries.labels(label).inc)
    return replace(source, provider=Measured(Limited(retrying), metrics, label))


def openai_source(access: Credentials, http: httpx2.AsyncClient, *, responses: bool) -> Source:
    """Models behind one of OpenAI's APIs."""
    client = openai.AsyncOpenAI(
        api_key=access.api_key or _NO_KEY,
        base_url=access.base_url or OPENAI_URL,
        organization=access.organization or None,
        project=access.project or None,
        http_client=http,
    )
    own = is_openai(access.base_url or OPENAI_URL)
    provider: Provider = (
        ResponsesProvider(OpenAIEndpoint(client, openai_responses.PATH))
        if responses
        else ChatProvider(OpenAIEndpoint(client, openai_chat.PATH), own=own)
    )
    return Source(provider, list_models=partial(openai_models, client, own=own), known=catalog.OPENAI if own else ())


def anthropic_source(access: Credentials, http: httpx2.AsyncClient) -> Source:
    """Models behind Anthropic's API."""
    key = access.api_key or (None if access.auth_token else _NO_KEY)
    url = access.base_url or ANTHROPIC_URL
    client = anthropic.AsyncAnthropic(
        api_key=key,
        auth_token=None if key else access.auth_token,
        base_url=url,
        http_client=http,
    )
    provider = AnthropicProvider(AnthropicEndpoint(client, anthropic_messages.PATH))
    known = catalog.ANTHROPIC if url == ANTHROPIC_URL else ()
    return Source(provider, list_models=partial(anthropic_models, client), known=known)


def is_openai(base_url: str) -> bool:
    """Whether this is OpenAI itself. Of others we only expect Chat Completions."""
    return (urlsplit(base_url).hostname or "").endswith(".openai.com")


def _openai(environ: Mapping[str, str], http: httpx2.AsyncClient, api: str) -> Source:
    access = Credentials(
        base_url=_get(environ, "OPENAI_BASE_URL") or OPENAI_URL,
        api_key=_get(environ, "OPENAI_API_KEY"),
        organization=_get(environ, "OPENAI_ORG_ID"),
        project=_get(environ, "OPENAI_PROJECT_ID"),
    )
    own = is_openai(access.base_url)
    if own and not access.api_key:
        return _without_key("OPENAI_API_KEY", openai_responses.responses_body)
    return openai_source(access, http, responses=own if api == "auto" else api == "responses")


def _anthropic(environ: Mapping[str, str], http: httpx2.AsyncClient) -> Source:
    access = Credentials(
        base_url=_get(environ, "ANTHROPIC_BASE_URL") or ANTHROPIC_URL,
        api_key=_get(environ, "ANTHROPIC_API_KEY"),
        auth_token=_get(environ, "ANTHROPIC_AUTH_TOKEN"),
    )
    if access.base_url == ANTHROPIC_URL and not access.api_key and not access.auth_token:
        return _without_key("ANTHROPIC_API_KEY", anthropic_messages.anthropic_body)
    return anthropic_source(access, http)


def _without_key(variable: str, body: Callable[[ModelRequest], dict[str, Any]]) -> Source:
    return Source(Unconfigured(f"No key for this model's provider: set {variable} where the server is started.", body))


def _get(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()
