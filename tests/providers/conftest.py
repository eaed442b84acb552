"""A fake provider for every test, and one pool of connections for all of them."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from services.models.http import http_client
from tests.helpers.fakellm import FakeLlm, fake_llm


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlm]:
    async with fake_llm() as server:
        yield server


@pytest.fixture(scope="session")
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with http_client() as client:
        yield client
