"""The fake provider and the vendors' real clients, talking to each other."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from services.fakellm.server import FakeLlm, fake_llm

__all__ = ["FakeLlm", "anthropic_client", "fake_llm", "openai_client"]


@asynccontextmanager
async def openai_client(fake: FakeLlm) -> AsyncIterator[AsyncOpenAI]:
    """The real client, which tries everything once."""
    async with AsyncOpenAI(base_url=fake.openai_base_url, api_key="sk-fake-1234", max_retries=0) as client:
        yield client


@asynccontextmanager
async def anthropic_client(fake: FakeLlm) -> AsyncIterator[AsyncAnthropic]:
    """The real client, which tries everything once."""
    async with AsyncAnthropic(base_url=fake.anthropic_base_url, api_key="sk-ant-1234", max_retries=0) as client:
        yield client
