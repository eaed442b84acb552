"""Which providers there are, from the variables that everybody uses."""

from collections.abc import AsyncIterator, Mapping

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from services.models import catalog
from services.models.environment import is_openai, providers
from services.models.errors import ModelError, ModelErrorType
from services.models.http import http_client
from services.models.metrics import ModelMetrics
from services.models.registry import ProviderModels
from tests.helpers.fakellm import fake_llm
from tests.helpers.providers import ask, collect

ORG = "org"


def found(environ: Mapping[str, str], http: httpx2.AsyncClient, openai_api: str = "auto") -> ProviderModels:
    """The models of a server with these variables."""
    return ProviderModels(providers(environ, http, ModelMetrics(CollectorRegistry()), openai_api))


@pytest.fixture(scope="module")
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with http_client() as client:
        yield client


@pytest.mark.parametrize(
    ("handle", "variable"), [("openai/gpt-5", "OPENAI_API_KEY"), ("anthropic/claude-opus-5", "ANTHROPIC_API_KEY")]
)
async def test_without_a_key_it_says_which_is_missing(handle: str, variable: str, http: httpx2.AsyncClient) -> None:
    models = found({}, http)
    assert await models.knows(ORG, handle)
    provider, _ = await models.resolve(ORG, handle)
    _, error = await collect(provider, ask())
    assert error is not None
    assert error.kind is ModelErrorType.AUTHENTICATION
    assert variable in error.message


@pytest.mark.parametrize(
    ("handle", "variables", "path", "authorization"),
    [
        ("openai/gpt-5", {"OPENAI_API_KEY": "k1", "OPENAI_BASE_URL": "{}/v1"}, "/v1/chat/completions", "Bearer k1"),
        ("openai/gpt-5", {"OPENAI_BASE_URL": "{}/v1"}, "/v1/chat/completions", "Bearer none"),
        ("anthropic/c", {"ANTHROPIC_API_KEY": "k2", "ANTHROPIC_BASE_URL": "{}"}, "/v1/messages", "Bearer k2"),
        ("anthropic/c", {"ANTHROPIC_AUTH_TOKEN": "k3", "ANTHROPIC_BASE_URL": "{}"}, "/v1/messages", "Bearer k3"),
        ("ollama/org/llama:8b", {"OLLAMA_BASE_URL": "{}/v1"}, "/v1/chat/completions", "Bearer none"),
    ],
)
async def test_the_standard_variables_work(
    handle: str, variables: dict[str, str], path: str, authorization: str, http: httpx2.AsyncClient
) -> None:
    async with fake_llm() as fake:
        environ = {name: value.format(f"http://{fake.address}") for name, value in variables.items()}
        provider, name = await found(environ, http).resolve(ORG, handle)
        _, error = await collect(provider, ask(model=name))
        assert error is None
        assert fake.requests[0].path == path
        assert fake.requests[0].headers["authorization"] == authorization
        assert fake.requests[0].body["model"] == handle.partition("/")[2]


async def test_handles(http: httpx2.AsyncClient) -> None:
    models = found({}, http)
    assert not await models.knows(ORG, "openai/")
    assert not await models.knows(ORG, "openai")
    assert not await models.knows(ORG, "ollama/llama"), "only with a variable of its own"
    with pytest.raises(ModelError, match="No model provider 'ollama' is configured") as raised:
        await models.resolve(ORG, "ollama/llama")
    assert raised.value.kind is ModelErrorType.AUTHENTICATION


@pytest.mark.parametrize(
    ("choice", "path"),
    [("auto", "/v1/chat/completions"), ("chat", "/v1/chat/completions"), ("responses", "/v1/responses")],
)
async def test_which_of_openai_s_apis_is_a_choice(choice: str, path: str, http: httpx2.AsyncClient) -> None:
    async with fake_llm() as fake:
        provider, name = await found({"OPENAI_BASE_URL": fake.openai_base_url}, http, choice).resolve(ORG, "openai/x")
        _, error = await collect(provider, ask(model=name))
        assert error is None
        assert fake.requests[0].path == path


def test_only_openai_itself_is_spoken_to_by_its_newest_api() -> None:
    assert is_openai("https://api.openai.com/v1")
    assert is_openai("https://eu.api.openai.com/v1/")
    assert not is_openai("http://127.0.0.1:8000/v1")
    assert not is_openai("https://api.openai.com.example.org/v1")


@pytest.mark.parametrize(
    ("name", "window", "reasons"),
    [
        ("gpt-4", 8_192, False),
        ("gpt-4o-mini", 128_000, False),
        ("gpt-4.1-mini", 1_047_576, False),
        ("gpt-5-mini", 400_000, True),
        ("gpt-5.1-chat-latest", 128_000, False),
        ("o3-mini", 200_000, True),
        ("gpt-6-sol", 400_000, True),
        ("something", None, True),
    ],
)
def test_what_is_known_of_openai_s_models(name: str, window: int | None, reasons: bool) -> None:
    assert catalog.context_window(name) == window
    assert catalog.openai_reasons(name) is reasons


@pytest.mark.parametrize(
    ("name", "budget", "output"),
    [
        ("claude-3-haiku-20240307", True, 4_096),
        ("claude-3-5-sonnet-latest", True, 8_192),
        ("claude-3-7-sonnet-20250219", True, 16_384),
        ("claude-sonnet-4-20250514", True, 16_384),
        ("claude-opus-4-1-20250805", True, 16_384),
        ("claude-haiku-4-5", True, 16_384),
        ("claude-opus-4-6", False, 16_384),
        ("claude-sonnet-5-5", False, 16_384),
        ("claude-mythos-5", False, 16_384),
    ],
)
def test_what_is_known_of_claude(name: str, budget: bool, output: int) -> None:
    assert catalog.anthropic_takes_budget(name) is budget
    assert catalog.anthropic_max_output(name) == output
