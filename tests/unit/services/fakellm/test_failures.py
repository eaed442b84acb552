"""HTTP errors, as the vendors' own clients see them."""

from typing import Any

import anthropic
import openai
import pytest

from services.fakellm.scripts import Api, Failure
from tests.helpers.fakellm import FakeLlm
from tests.unit.services.fakellm.clients import Ask

STATUSES = [400, 401, 402, 403, 404, 408, 413, 429, 500, 503, 504, 529]
Status = (openai.APIStatusError, anthropic.APIStatusError)


async def refused(ask: Ask, text: str = "hi", stream: bool = True) -> Any:
    """The error of the vendor's SDK."""
    with pytest.raises(Status) as caught:
        await ask(text, stream=stream)
    return caught.value


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", STATUSES)
async def test_every_status(fake: FakeLlm, api: Api, ask: Ask, status: int, stream: bool) -> None:
    fake.will(Failure(status))
    error = await refused(ask, stream=stream)
    assert error.status_code == status
    # OpenAI's client shows what is inside of `error`.
    said = error.body["error"] if api is Api.MESSAGES else error.body
    assert said["type"]
    assert said["message"]


@pytest.mark.parametrize(
    ("api", "status", "kind", "code"),
    [
        (Api.CHAT, 401, openai.AuthenticationError, "invalid_api_key"),
        (Api.CHAT, 403, openai.PermissionDeniedError, "unsupported_country_region_territory"),
        (Api.CHAT, 404, openai.NotFoundError, "model_not_found"),
        (Api.RESPONSES, 429, openai.RateLimitError, "rate_limit_exceeded"),
        (Api.RESPONSES, 500, openai.InternalServerError, "server_error"),
        (Api.MESSAGES, 401, anthropic.AuthenticationError, "authentication_error"),
        (Api.MESSAGES, 403, anthropic.PermissionDeniedError, "permission_error"),
        (Api.MESSAGES, 413, anthropic.APIStatusError, "request_too_large"),
        (Api.MESSAGES, 429, anthropic.RateLimitError, "rate_limit_error"),
        (Api.MESSAGES, 529, anthropic.APIStatusError, "overloaded_error"),
    ],
)
async def test_the_vendors_own_words(
    fake: FakeLlm, api: Api, ask: Ask, status: int, kind: type[Exception], code: str
) -> None:
    fake.will(Failure(status))
    error = await refused(ask)
    assert kind in type(error).__mro__
    assert (error.body["error"]["type"] if api is Api.MESSAGES else error.code) == code


async def test_retry_after(fake: FakeLlm, ask: Ask) -> None:
    fake.will(Failure(429, retry_after=1.5))
    error = await refused(ask)
    assert error.response.headers["retry-after"] == "1.5"


async def test_a_full_context_window(fake: FakeLlm, api: Api, ask: Ask) -> None:
    fake.will(Failure(400, kind="overflow"))
    error = await refused(ask)
    assert error.status_code == 400
    words = {
        Api.CHAT: "maximum context length is",
        Api.RESPONSES: "exceeds the context window",
        Api.MESSAGES: "prompt is too long",
    }
    assert words[api] in str(error)
    if api is not Api.MESSAGES:
        assert error.code == "context_length_exceeded"


async def test_no_money(fake: FakeLlm, api: Api, ask: Ask) -> None:
    fake.will(Failure(429, kind="quota"))
    error = await refused(ask)
    if api is Api.MESSAGES:
        assert error.status_code == 400
        assert "credit balance is too low" in str(error)
    else:
        assert (error.status_code, error.code) == (429, "insufficient_quota")


async def test_a_proxys_page(fake: FakeLlm, ask: Ask) -> None:
    fake.will(Failure(503, body="<html>busy</html>"))
    error = await refused(ask)
    assert (error.status_code, error.response.text) == (503, "<html>busy</html>")


async def test_the_clients_try_again(fake: FakeLlm) -> None:
    fake.will(*(Failure(status, retry_after=0.01) for status in (429, 529, 408)))
    async with anthropic.AsyncAnthropic(base_url=fake.anthropic_base_url, api_key="k", max_retries=3) as client:
        message = await client.messages.create(max_tokens=9, model="m", messages=[{"role": "user", "content": "hi"}])
    assert message.content[0].type == "text"
    assert [exchange.status for exchange in fake.requests] == [429, 529, 408, 200]
