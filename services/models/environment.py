"""The providers that the standard variables of the SDKs stand for."""

from collections.abc import AsyncGenerator, Mapping
from typing import Final
from urllib.parse import urlsplit

import anthropic
import httpx2
import openai
from msgspec import Struct

from services.models import anthropic_messages, openai_chat, openai_responses
from services.models.anthropic_messages import AnthropicProvider
from services.models.api import ModelEvent, ModelRequest, Provider
from services.models.errors import ModelError, ModelErrorType
from services.models.http import AnthropicEndpoint, OpenAIEndpoint
from services.models.limits import Limited
from services.models.openai_chat import ChatProvider
from services.models.openai_responses import ResponsesProvider
from services.models.retry import Retrying

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

    def __init__(self, variable: str) -> None:
        self._variable = variable

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Says what is missing."""
        message = f"No key for this model's provider: set {self._variable} where the server is started."
        raise ModelError(ModelErrorType.AUTHENTICATION, message)


def providers(environ: Mapping[str, str], http: httpx2.AsyncClient) -> dict[str, tuple[Provider, None]]:
    """Every provider by the name before the slash of a handle. Each takes any model name."""
    found: dict[str, Provider] = {"openai": _openai(environ, http), "anthropic": _anthropic(environ, http)}
    for name, default in _COMPATIBLE.items():
        url, key = _get(environ, f"{name.upper()}_BASE_URL"), _get(environ, f"{name.upper()}_API_KEY")
        if url or key:
            found[name] = openai_provider(Credentials(url or default, key), http, responses=False)
    return {name: (Limited(Retrying(provider)), None) for name, provider in found.items()}


def openai_provider(access: Credentials, http: httpx2.AsyncClient, *, responses: bool) -> Provider:
    """A provider that speaks one of OpenAI's APIs."""
    client = openai.AsyncOpenAI(
        api_key=access.api_key or _NO_KEY,
        base_url=access.base_url,
        organization=access.organization or None,
        project=access.project or None,
        http_client=http,
    )
    if responses:
        return ResponsesProvider(OpenAIEndpoint(client, openai_responses.PATH))
    return ChatProvider(OpenAIEndpoint(client, openai_chat.PATH), own=is_openai(access.base_url))


def anthropic_provider(access: Credentials, http: httpx2.AsyncClient) -> Provider:
    """A provider that speaks Anthropic's API."""
    key = access.api_key or (None if access.auth_token else _NO_KEY)
    client = anthropic.AsyncAnthropic(
        api_key=key,
        auth_token=None if key else access.auth_token,
        base_url=access.base_url,
        http_client=http,
    )
    return AnthropicProvider(AnthropicEndpoint(client, anthropic_messages.PATH))


def is_openai(base_url: str) -> bool:
    """Whether this is OpenAI itself. Of others we only expect Chat Completions."""
    return (urlsplit(base_url).hostname or "").endswith(".openai.com")


def _openai(environ: Mapping[str, str], http: httpx2.AsyncClient) -> Provider:
    access = Credentials(
        base_url=_get(environ, "OPENAI_BASE_URL") or OPENAI_URL,
        api_key=_get(environ, "OPENAI_API_KEY"),
        organization=_get(environ, "OPENAI_ORG_ID"),
        project=_get(environ, "OPENAI_PROJECT_ID"),
    )
    own = is_openai(access.base_url)
    if own and not access.api_key:
        return Unconfigured("OPENAI_API_KEY")
    return openai_provider(access, http, responses=own)


def _anthropic(environ: Mapping[str, str], http: httpx2.AsyncClient) -> Provider:
    access = Credentials(
        base_url=_get(environ, "ANTHROPIC_BASE_URL") or ANTHROPIC_URL,
        api_key=_get(environ, "ANTHROPIC_API_KEY"),
        auth_token=_get(environ, "ANTHROPIC_AUTH_TOKEN"),
    )
    if access.base_url == ANTHROPIC_URL and not access.api_key and not access.auth_token:
        return Unconfigured("ANTHROPIC_API_KEY")
    return anthropic_provider(access, http)


def _get(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()
