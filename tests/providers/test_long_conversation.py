"""A conversation that is many times as long as the model's window, against a provider that refuses what is too big."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import httpx2
import pytest
from sqlalchemy import Connection, Engine, event, insert, update

from common.db.tables import conversations, messages
from common.ids import DEFAULT_ORGANIZATION, Prefix, new_id
from common.pb.bridle.v1 import agent_pb2, agent_service_pb2, block_pb2, block_service_pb2
from common.pb.bridle.v1.model_pb2 import ModelSettings
from common.settings import Settings
from services.app import Node, Parts, running
from services.context.summary import PROMPT
from services.fakellm.rules import Rule
from services.fakellm.scripts import Answer, Api, Failure, Say
from services.messages.model import Body, Role, Text
from services.messages.store import context
from services.models import tokens
from services.models.registry import ProviderModels
from services.models.sources import Source
from services.runs.store import rows
from tests.helpers.fakellm import FakeLlm
from tests.helpers.inprocess import AgentClient, Run, World
from tests.helpers.models import ScriptedModels
from tests.helpers.providers import provider_of

WINDOW = 1_500
ANSWER = 200
FACT = "The code word is heliotrope."
SUMMARY = "They talked about the weather, and dice were rolled."
CHATTER = "It rained in the morning and the wind came from the north, so we stayed inside and told each other stories."


@pytest.fixture(params=list(Api))
def api(request: pytest.FixtureRequest) -> Api:
    return Api(request.param)


@pytest.fixture
async def world(tmp_path: Path, fake: FakeLlm, http: httpx2.AsyncClient, api: Api) -> AsyncIterator[World]:
    """A server whose only provider is the fake one, by one of the three APIs."""
    # Its own rough count is of bytes, and half of those may be what JSON adds to messages as short as these.
    fake.rule(Rule(Failure(400, kind="overflow"), over_tokens=WINDOW * 2))
    fake.rule(Rule(Answer(parts=(Say(text=SUMMARY),)), text="^Conversation to summarise"))
    settings = Settings.from_env(
        {
            "BRIDLE_GRPC_ADDRESS": "127.0.0.1:0",
            "BRIDLE_HTTP_ADDRESS": "127.0.0.1:0",
            "BRIDLE_DATA_DIR": str(tmp_path),
            "BRIDLE_DRAIN_SECONDS": "0",
        }
    )
    models = ProviderModels({"fake": Source(provider_of(api, fake, http))})
    async with (
        running(settings, Parts(models=models)) as serving,
        grpc.aio.insecure_channel(serving.grpc_address) as channel,
    ):
        yield World(channel, ScriptedModels(), serving.node)


async def small_agent(world: World) -> AgentClient:
    """An agent with a fact in its memory, a tool, and a model that cannot be shown much."""
    block = block_service_pb2.CreateBlockRequest(block=block_pb2.Block(label="facts", value=FACT))
    wanted = agent_pb2.Agent(
        model="fake/small",
        block_ids=[(await world.blocks.CreateBlock(block, timeout=10)).id],
        model_settings=ModelSettings(context_window=WINDOW, max_output_tokens=ANSWER),
    )
    request = agent_service_pb2.CreateAgentRequest(agent=wanted, tool_names=["roll_dice"])
    made = await world.agents.CreateAgent(request, timeout=10)
    return AgentClient(world, made, world.models.make())


async def talk(agent: AgentClient, turns: int) -> None:
    """Chatter, and now and then a tool."""
    for number in range(turns):
        said = 'call roll_dice {"sides": 6}' if number % 3 == 0 else f"{number}: {CHATTER}"
        run = (await agent.send(said)).run
        assert run.state == Run.STATE_COMPLETED, run.error


def check_requests(fake: FakeLlm) -> int:
    """Every call fitted and was accepted; the fake refuses calls that are split from their returns. Summaries made."""
    summaries = 0
    for exchange in fake.requests:
        assert exchange.status == 200, exchange.shown()
        texts = list(strings(exchange.body))
        # Down to the names of types and the ids of calls, and with the answer it still fits.
        assert sum(map(tokens.count, texts)) + ANSWER <= WINDOW
        summarises = any(PROMPT in text for text in texts)
        summaries += summarises
        assert summarises or any(FACT in text for text in texts)
    return summaries


def strings(value: Any) -> Iterator[str]:
    """Every text in a body."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from strings(each)


@contextmanager
def counted_statements() -> Iterator[Counter[str]]:
    found: Counter[str] = Counter()

    def note(conn: object, cursor: object, statement: str, *rest: Any) -> None:
        found[statement] += 1

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", note)


async def step_cost(agent: AgentClient) -> tuple[int, int]:
    """Statements of one plain message, and rows that its context is made of."""
    node: Node = agent.world.node
    costs = []
    for _ in range(3):
        with counted_statements() as found:
            assert (await agent.send("and now?")).run.state == Run.STATE_COMPLETED
        costs.append(found.total())
    # What the server does by the clock is not the message's, and is in no three messages in a row.
    return min(costs), len(await node.db.read(context, agent.conversation_id))


def preload(conn: Connection, agent: AgentClient, count: int) -> None:
    """As if so many messages had been said before."""
    conn.execute(
        insert(messages),
        [
            {
                "id": new_id(Prefix.MESSAGE),
                "organization_id": DEFAULT_ORGANIZATION,
                "agent_id": agent.id,
                "conversation_id": agent.conversation_id,
                "seq": seq,
                "role": Role.ASSISTANT if seq % 2 == 0 else Role.USER,
                "body": rows.BODY.encode(Body((Text(f"{seq}: {CHATTER}"),))),
                "created_at": agent.world.node.clock.now(),
            }
            for seq in range(1, count + 1)
        ],
    )
    mine = update(conversations).where(conversations.c.id == agent.conversation_id)
    conn.execute(mine.values(next_message_seq=count + 1))


async def test_it_goes_on_however_long_it_gets(world: World, fake: FakeLlm) -> None:
    agent = await small_agent(world)
    await talk(agent, 45)

    assert check_requests(fake) >= 2
    assert len(await agent.log()) > 100
    assert len(await world.node.db.read(context, agent.conversation_id)) < 70


@pytest.mark.parametrize("api", [Api.CHAT], indirect=True)
async def test_two_thousand_messages_cost_what_fifty_do(world: World, fake: FakeLlm) -> None:
    short, long = await small_agent(world), await small_agent(world)
    await talk(short, 20)
    await world.node.db.write(preload, long, 2_000)
    # One summary of all that, with its cut said in it; then as always.
    await talk(long, 5)

    short_statements, short_rows = await step_cost(short)
    long_statements, long_rows = await step_cost(long)

    assert check_requests(fake) >= 1
    said = [text for exchange in fake.requests for text in strings(exchange.body)]
    assert any("older messages are left out here" in text for text in said)
    assert long_statements == short_statements
    # As many as the window holds, and no more.
    assert max(long_rows, short_rows) < 70
    assert len(await long.log()) == 1_000  # a page; the log is all there
