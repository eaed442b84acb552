"""A fake provider for each test, and one client for each API."""

from collections.abc import AsyncIterator

import pytest

from services.fakellm.scripts import Api
from tests.helpers.fakellm import FakeLlm, fake_llm
from tests.unit.services.fakellm.clients import Ask, client_of


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlm]:
    """A fake provider that listens."""
    async with fake_llm() as running:
        yield running


@pytest.fixture(params=list(Api))
def api(request: pytest.FixtureRequest) -> Api:
    """Each API in turn."""
    return Api(request.param)


@pytest.fixture
async def ask(api: Api, fake: FakeLlm) -> AsyncIterator[Ask]:
    """Asks the fake through the vendor's own client."""
    async with client_of(api, fake) as asking:
        yield asking
