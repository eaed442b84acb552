"""Waiting: what thousands of runs that wait for a person cost, and how fast the oldest of them is answered."""

import asyncio
import time

from common.pb.bridle.v1 import run_pb2
from tests.bench.report import Table, spread_ms
from tests.bench.rig import Rig, Unexpected, rig, spread_over

_WORKERS = 20
_APPROVALS = 50
_IDLE_SECONDS = 5.0
_CALL = 'call wait {"seconds": 0}'


async def run(quick: bool) -> Table:
    """Runs that wait for approval, next to as many that ran to their end."""
    count = 500 if quick else 10_000
    table = Table(
        "waiting",
        f"{count} runs that wait for approval, after {count} that ran to their end (the same work)",
    )
    async with rig() as bench:
        await _approve(bench, table, "the first, nobody else waits", await _start(bench, _APPROVALS))
        await _idle(bench, table, "idle, none waits")
        await _grow(bench, table, "ran to their end", count, waits=False)
        waiting = await _grow(bench, table, "wait for approval", count, waits=True)
        await _idle(bench, table, f"idle, {count} wait")
        table.notes.append(f"live actors with {count} waiting: {await bench.metric('bridle_runs_active'):.0f}")
        await _approve(bench, table, f"the oldest of {count}", waiting[:_APPROVALS])
        await _approve(bench, table, f"the newest of {count}", waiting[-_APPROVALS:])
    return table


async def _start(bench: Rig, count: int) -> list[str]:
    return [await _one(bench, waits=True) for _ in range(count)]


async def _one(bench: Rig, *, waits: bool) -> str:
    agent_id = await bench.client.create_agent(approval=waits)
    ends_in = run_pb2.Run.STATE_AWAITING_APPROVAL if waits else run_pb2.Run.STATE_COMPLETED
    return await bench.client.send(agent_id, _CALL, ends_in)


async def _grow(bench: Rig, table: Table, what: str, count: int, *, waits: bool) -> list[str]:
    """Make so many runs; their ids, oldest first."""
    made: list[str] = []

    async def one(_worker: int, _number: int) -> None:
        made.append(await _one(bench, waits=waits))

    before, began = bench.resident_mb(), time.perf_counter()
    await spread_over(_WORKERS, count // _WORKERS, one)
    took, grown = time.perf_counter() - began, bench.resident_mb() - before
    _row(table, what, runs=len(made), RSS_growth_MB=grown, runs_per_s=len(made) / took)
    return made


async def _idle(bench: Rig, table: Table, what: str) -> None:
    cpu = bench.cpu()
    await asyncio.sleep(_IDLE_SECONDS)
    _row(table, what, server_CPU_percent=(bench.cpu() - cpu) / _IDLE_SECONDS * 100)


async def _approve(bench: Rig, table: Table, what: str, run_ids: list[str]) -> None:
    took: list[float] = []
    cpu = bench.cpu()
    for run_id in run_ids:
        call_id = await bench.client.open_call(run_id)
        began = time.perf_counter()
        after_seq = await bench.client.approve(run_id, call_id)
        run = await bench.client.until_stopped(run_id, after_seq)
        took.append(time.perf_counter() - began)
        if run.state != run_pb2.Run.STATE_COMPLETED:
            raise Unexpected(f"an approved run ended in state {run.state}")
    _row(
        table,
        f"approve {what}",
        runs=len(took),
        server_CPU_ms_each=(bench.cpu() - cpu) / len(took) * 1e3,
        **spread_ms(took),
    )


def _row(table: Table, what: str, **cells: float | int | str | None) -> None:
    columns = dict.fromkeys(
        ("runs", "RSS_growth_MB", "runs_per_s", "server_CPU_percent", "server_CPU_ms_each", "p50_ms", "p99_ms"), None
    )
    table.add(what=what, **{**columns, **cells})
