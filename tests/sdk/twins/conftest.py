"""An SDK, and an agent with a tool that waits for a person and one that does not."""

import os
from collections.abc import Iterator

import pytest
from helpers import CLAUDE, Agent, roll_dice, secret_code, upsert
from letta_client import Letta


@pytest.fixture(scope="session")
def url() -> str:
    """Where the gateway is."""
    return os.environ["BRIDLE_URL"]


@pytest.fixture
def client(url: str) -> Iterator[Letta]:
    """The SDK, as a user makes it."""
    with Letta(base_url=url) as made:
        yield made


@pytest.fixture
def agent(client: Letta) -> Iterator[Agent]:
    """An agent whose calls of `secret_code` wait for a person."""
    guarded = upsert(client, secret_code, default_requires_approval=True)
    dice = upsert(client, roll_dice)
    made = client.agents.create(
        name="approval twin",
        agent_type="letta_v1_agent",
        include_base_tools=False,
        include_base_tool_rules=False,
        tool_ids=[guarded.id, dice.id],
        tool_rules=[],
        model=CLAUDE,
        embedding="openai/text-embedding-3-small",
        tags=["approval_test"],
    )
    client.agents.update(agent_id=made.id, parallel_tool_calls=True)
    yield Agent(client, made.id)
    client.agents.delete(agent_id=made.id)
    client.tools.delete(tool_id=guarded.id)
    client.tools.delete(tool_id=dice.id)
