"""Stop means stop, for streams in the background too: the twins of the cancellation test (seed 001)."""

import asyncio
import inspect
from typing import Any

import pytest
from helpers import merged, roll_dice, user
from letta_client import AsyncLetta

# As configurations of the seed's server name them: model and endpoint type.
MODELS = {
    "gpt-4o-mini": "openai",
    "o3": "openai",
    "gpt-5": "openai",
    "claude-sonnet-4-5-20250929": "anthropic",
    "claude-opus-4-1-20250805": "anthropic",
}
DRONE = "think of a number and count slowly to 3000"


async def upsert(client: AsyncLetta) -> Any:
    """Register the dice; the newest SDK has lost the method for functions."""
    if hasattr(client.tools, "upsert_from_function"):
        return await client.tools.upsert_from_function(func=roll_dice)
    return await client.tools.upsert(source_code=inspect.getsource(roll_dice))


async def read(stream: Any, until: str = "", then: Any = None) -> list[Any]:
    """Everything that a stream has; `then` is done once, when a chunk of this kind has come."""
    chunks = []
    async for chunk in stream:
        chunks.append(chunk)
        if then is not None and chunk.message_type == until:
            await then()
            then = None
    return chunks


async def cancel_in_the_background(url: str, model: str, endpoint: str) -> None:
    async with AsyncLetta(base_url=url) as client:
        dice = await upsert(client)
        agent = await client.agents.create(
            agent_type="letta_v1_agent",
            name="cancel twin",
            include_base_tools=False,
            tool_ids=[dice.id],
            model="openai/gpt-4o",
            embedding="openai/text-embedding-3-small",
            tags=["test"],
        )
        config: Any = {"model": model, "model_endpoint_type": endpoint, "context_window": 30000}
        updated = await client.agents.update(agent_id=agent.id, llm_config=config)
        assert updated.llm_config.model == model

        async def cancel() -> None:
            await client.agents.messages.cancel(agent_id=agent.id)

        stream = await client.agents.messages.stream(
            agent_id=agent.id, messages=user(DRONE), stream_tokens=True, background=True
        )
        chunks = await read(stream, "assistant_message", cancel)
        run_id = chunks[0].run_id
        assert (await client.runs.retrieve(run_id)).status == "cancelled"
        listed = await client.runs.list(agent_id=agent.id, stop_reason="cancelled", limit=1)
        assert [run.id for run in listed.items] == [run_id]

        replay = await client.runs.messages.stream(run_id, starting_after=0)
        again = merged(await read(replay))
        assert again
        assert [each.stop_reason for each in again if each.message_type == "stop_reason"] == ["cancelled"]
        await client.agents.delete(agent.id)


@pytest.mark.parametrize(("model", "endpoint"), MODELS.items())
def test_a_cancelled_background_stream_can_be_read_again(url: str, model: str, endpoint: str) -> None:
    asyncio.run(cancel_in_the_background(url, model, endpoint))
