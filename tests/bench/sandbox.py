"""Sandbox: what a call of a Python tool costs with all walls up, and how fast it is gone when it is cancelled."""

import asyncio
import resource
import time

from services.sandbox.model import Job, Limits, Mode, Reason, Wall
from services.sandbox.sandbox import Sandbox
from tests.bench.report import Table, spread_ms
from tests.bench.rig import Unexpected, spread_over

_NOTHING = Job("def f():\n    return 1", "f")
_SLEEP = Job("import time\ndef f():\n    time.sleep(1000)", "f")
_WORKERS = 4


async def run(quick: bool) -> Table:
    """A function that does nothing, one after the other and several at once; then one that sleeps, cancelled."""
    table = Table("sandbox", "an empty Python function; CPU = of the server's end, the zygote and the call together")
    count = 200 if quick else 2000
    for namespaces in (True, False):
        await _measure(table, count, namespaces)
    return table


async def _measure(table: Table, count: int, namespaces: bool) -> None:
    sandbox = Sandbox(Limits(concurrency=_WORKERS), mode=Mode.OFF, namespaces=namespaces)
    cpu = _cpu()
    await sandbox.start()
    try:
        took = [await _timed(sandbox) for _ in range(count)]
        began = time.perf_counter()
        await spread_over(_WORKERS, count // _WORKERS, lambda _worker, _number: _timed(sandbox))
        per_second = count / (time.perf_counter() - began)
        gone = [await _cancel(sandbox) for _ in range(count // 10)]
    finally:
        await sandbox.close()
    table.add(
        walls=f"{len(sandbox.walls().standing)} of {len(Wall)}",
        calls=count,
        **spread_ms(took),
        per_s=per_second,
        # What the zygote and the calls used is known when they have ended.
        CPU_ms=(_cpu() - cpu) / (2 * count + count // 10) * 1e3,
        **spread_ms(gone, "cancel_"),
    )


async def _timed(sandbox: Sandbox) -> float:
    began = time.perf_counter()
    result = await sandbox.run(_NOTHING)
    took = time.perf_counter() - began
    if result.reason is not Reason.OK:
        raise Unexpected(f"a call failed: {result}")
    return took


async def _cancel(sandbox: Sandbox) -> float:
    """From the cancel until the processes are gone."""
    call = asyncio.ensure_future(sandbox.run(_SLEEP))
    await asyncio.sleep(0.03)
    began = time.perf_counter()
    call.cancel()
    await asyncio.wait([call])
    if not call.cancelled():
        raise Unexpected(f"a cancelled call ended otherwise: {call.result()}")
    return time.perf_counter() - began


def _cpu() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )
