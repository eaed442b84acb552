"""Messages: what it costs to say something, next to the smallest useful call."""

import time
from collections.abc import Awaitable, Callable

from tests.bench.report import Table, spread_ms
from tests.bench.rig import Rig, rig, spread_over, timed

# A longer conversation costs more, which is the scenario `growth`.
_PER_AGENT = 10
_WORKERS = 64

Job = Callable[[int, int], Awaitable[object]]


async def run(quick: bool) -> Table:
    """SendMessage on demo/echo, one after the other and from 64 workers at once."""
    table = Table("messages", f"SendMessage on demo/echo; at most {_PER_AGENT} messages per agent; ratio = to GetAgent")
    async with rig() as bench:
        for workers, jobs in ((1, 200 if quick else 1000), (_WORKERS, 10 if quick else 40)):
            agents = await _agents(bench, workers, jobs)
            await _compare(bench, table, workers, jobs, agents)
    return table


async def _agents(bench: Rig, workers: int, jobs: int) -> list[list[str]]:
    each = -(-jobs // _PER_AGENT)
    return [[await bench.client.create_agent() for _ in range(each)] for _ in range(workers)]


async def _compare(bench: Rig, table: Table, workers: int, jobs: int, agents: list[list[str]]) -> None:
    async def get(worker: int, number: int) -> None:
        await bench.client.get_agent(agents[worker][number // _PER_AGENT])

    async def send(worker: int, number: int) -> None:
        await bench.client.send(agents[worker][number // _PER_AGENT], "hello there, how are you")

    yardstick = await _measure(bench, table, "GetAgent", workers, jobs, get)
    await _measure(bench, table, "SendMessage", workers, jobs, send, yardstick)


async def _measure(
    bench: Rig, table: Table, call: str, workers: int, jobs: int, job: Job, yardstick: float | None = None
) -> float:
    """Add a row; the server's CPU seconds per call."""
    took: list[float] = []

    async def one(worker: int, number: int) -> None:
        took.append(await timed(lambda: job(worker, number)))

    cpu, began = bench.cpu(), time.perf_counter()
    await spread_over(workers, jobs, one)
    wall, cpu = time.perf_counter() - began, bench.cpu() - cpu
    each = cpu / len(took)
    table.add(
        call=call,
        clients=workers,
        calls=len(took),
        **spread_ms(took),
        per_s=len(took) / wall,
        server_CPU_ms=each * 1e3,
        ratio=each / yardstick if yardstick else 1.0,
    )
    return each
