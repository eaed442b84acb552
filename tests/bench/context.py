"""Context: what one message costs in a conversation that is many times as long as the model's window."""

from common.pb.bridle.v1 import agent_pb2, agent_service_pb2, model_pb2
from services.context.summary import PROMPT
from services.fakellm.record import Exchange
from services.fakellm.rules import Rule
from services.fakellm.scripts import Answer, Say
from services.fakellm.server import fake_llm
from services.models import tokens
from tests.bench.report import Table, spread_ms
from tests.bench.rig import DEADLINE, Rig, Unexpected, rig, timed

_SIZES = (50, 200, 500, 1000, 2000)
_QUICK_SIZES = (50, 200)
_WINDOW = 4_000
# Messages in the log of the yardstick: its window has just been filled for the first time.
_YOUNG = 200
_TRIES = 25
_SAID = "It rained in the morning and the wind came from the north, so we stayed inside and told each other stories."


async def run(quick: bool) -> Table:
    """SendMessage through a provider's API, by messages in the log; every request is looked at."""
    about = f"SendMessage on a window of {_WINDOW} tokens; ratio = CPU, to a conversation of {_YOUNG} at the same time"
    table = Table("context", about)
    summary = Rule(Answer(parts=(Say(text="They talked about the weather."),)), text="^Conversation to summarise")
    async with (
        fake_llm(rules=[summary], keep=10_000) as fake,
        rig(OPENAI_BASE_URL=fake.openai_base_url, OPENAI_API_KEY="sk-fake") as bench,
    ):
        # The first compaction reads the tokenizer's tables: that belongs to no figure.
        await _Conversation(bench, await _agent(bench)).grow(_YOUNG)
        long = _Conversation(bench, await _agent(bench))
        for size in _QUICK_SIZES if quick else _SIZES:
            young = _Conversation(bench, await _agent(bench))
            await young.grow(_YOUNG - 2 * _TRIES)
            await long.grow(size - 2 * _TRIES)
            before = len(fake.requests)
            took, cpu = await long.measure()
            heaviest, summaries = _looked_at(fake.requests[before:])
            _, yardstick = await young.measure()
            table.add(
                messages_in_the_log=long.held,
                calls=_TRIES,
                **spread_ms(took),
                server_CPU_ms=cpu * 1e3,
                ratio=cpu / yardstick,
                summaries=summaries,
                heaviest_request_tokens=heaviest,
            )
    return table


class _Conversation:
    """An agent's only conversation, and how long it is."""

    def __init__(self, bench: Rig, agent_id: str) -> None:
        self._bench = bench
        self._agent_id = agent_id
        self.held = 0

    async def grow(self, size: int) -> None:
        """Until so many messages are in its log."""
        while self.held < size:
            await self._say()

    async def measure(self) -> tuple[list[float], float]:
        """How long some messages took, and what CPU one of them cost the server; in seconds."""
        cpu = self._bench.cpu()
        took = [await self._say() for _ in range(_TRIES)]
        return took, (self._bench.cpu() - cpu) / _TRIES

    async def _say(self) -> float:
        # What is said, and what is answered.
        self.held += 2
        return await timed(lambda: self._bench.client.send(self._agent_id, f"{self.held}: {_SAID}"))


async def _agent(bench: Rig) -> str:
    settings = model_pb2.ModelSettings(context_window=_WINDOW)
    agent = agent_pb2.Agent(name="bench", model="openai/small", model_settings=settings)
    created = await bench.client.agents.CreateAgent(agent_service_pb2.CreateAgentRequest(agent=agent), timeout=DEADLINE)
    return str(created.id)


def _looked_at(exchanges: list[Exchange]) -> tuple[int, int]:
    """What the heaviest request weighed, and how many were for summaries; none may be too heavy."""
    heaviest = summaries = 0
    for exchange in exchanges:
        messages = exchange.body["messages"]
        weight = sum(tokens.count(message["content"]) + tokens.PER_MESSAGE for message in messages)
        if exchange.status != 200 or weight > _WINDOW:
            raise Unexpected(f"a request of {weight} tokens was answered with {exchange.status}")
        heaviest = max(heaviest, weight)
        summaries += messages[0]["content"].startswith(PROMPT)
    return heaviest, summaries
