"""Cancel: how long it takes until a run has stopped, in each phase, alone and with 200 other live streams.

Where a model is at work it is a provider on the wire, and a run has stopped when that provider was hung up on, too.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from common.pb.bridle.v1 import run_event_pb2, run_pb2
from tests.bench.child import child
from tests.bench.provider import MODEL, SILENT, SLOW, Provider, provider
from tests.bench.report import Cell, Table, percentile, spread_ms
from tests.bench.rig import Client, Rig, Unexpected, rig

_OTHERS = 200
# After the sign that a phase was reached: the cancel comes at any moment of it, not always at its first.
_SETTLE_SECONDS = (0.02, 0.07)

Receipt = run_pb2.CancelReceipt


@dataclass(frozen=True)
class Phase:
    """How to bring a run there, and how to see that it is."""

    name: str
    model: str
    text: str
    kind: int
    reached: Callable[[run_event_pb2.RunEvent], bool] | None
    approval: bool = False
    queued: bool = False
    # Whether a provider's connection is to be closed.
    wired: bool = False


_WAIT = 'call wait {"seconds": 60}'
PHASES = (
    Phase("queued", "demo/silent", "hello", Receipt.PHASE_QUEUED, None, queued=True),
    Phase("first token", MODEL, SILENT, Receipt.PHASE_FIRST_TOKEN, lambda e: e.HasField("step_started"), wired=True),
    Phase("streaming", MODEL, SLOW, Receipt.PHASE_STREAMING, lambda e: e.HasField("text_delta"), wired=True),
    Phase("tool", "demo/echo", _WAIT, Receipt.PHASE_TOOLS, lambda e: e.HasField("tool_started")),
    Phase(
        "approval",
        "demo/echo",
        _WAIT,
        Receipt.PHASE_AWAITING_APPROVAL,
        lambda e: e.HasField("approval_requested"),
        approval=True,
    ),
)


@dataclass
class Times:
    """Of each try, in seconds."""

    answered: list[float] = field(default_factory=list)
    # Until the stream had ended and the provider, if there was one, was hung up on.
    ended: list[float] = field(default_factory=list)
    # Until the provider was hung up on, as it says itself, or the tool was gone, as the receipt says.
    closed: list[float] = field(default_factory=list)
    # Between the stages of the receipt.
    seen: list[float] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)
    terminal: list[float] = field(default_factory=list)


async def run(quick: bool) -> Table:
    """CancelRun in each phase: until the call is answered, the work is closed, all has ended."""
    about = "ms from CancelRun sent to: call answered, work closed, all ended; then the receipt's stages (p50 ms)"
    table = Table("cancel", about)
    tries = 10 if quick else 60
    for others in (0, _OTHERS):
        async with provider() as wire, rig(**wire.environment) as bench:
            if others:
                async with child("tests.bench.crowd", bench.server.grpc_address, str(others)) as crowd:
                    busy = await _each_phase(bench, wire, table, tries, others)
                table.notes.append(f"the others were shown {float(crowd.last):.0f} tokens/s of {20 * others}")
            else:
                busy = await _each_phase(bench, wire, table, tries, others)
            table.notes.append(f"with {others} other streams the server used {busy:.0%} of a core")
    return table


async def _each_phase(bench: Rig, wire: Provider, table: Table, tries: int, others: int) -> float:
    """Add a row per phase; the server's CPU seconds per second."""
    cpu, began = bench.cpu(), time.perf_counter()
    for phase in PHASES:
        times = Times()
        for _ in range(tries):
            await _try(bench.client, wire, phase, times)
        _add(table, phase, others, times)
    return (bench.cpu() - cpu) / (time.perf_counter() - began)


async def _try(client: Client, wire: Provider, phase: Phase, times: Times) -> None:
    agent_id = await client.create_agent(phase.model, approval=phase.approval)
    if phase.queued:
        await client.create_run(agent_id, phase.text)
    run_id = (await client.create_run(agent_id, phase.text)).id
    reached = asyncio.Event()
    if phase.reached is None:
        reached.set()
    reader = asyncio.create_task(_read(client.follow(run_id), phase, reached))
    await reached.wait()
    await asyncio.sleep(random.uniform(*_SETTLE_SECONDS))
    began, began_at = time.perf_counter(), time.time()
    await client.cancel(run_id)
    times.answered.append(time.perf_counter() - began)
    run, ended = await reader
    closed = await wire.hung_up() - began_at if phase.wired else 0.0
    times.ended.append(max(ended - began, closed))
    _note_receipt(phase, run, began_at, times)
    if phase.wired:
        times.closed[-1] = closed
    if phase.queued:
        await client.cancel_all(agent_id)


async def _read(call: Any, phase: Phase, reached: asyncio.Event) -> tuple[run_pb2.Run, float]:
    """The run as its last event shows it, and when the stream had ended."""
    run: run_pb2.Run | None = None
    try:
        async for response in call:
            if phase.reached is not None and phase.reached(response.event):
                reached.set()
            if response.event.HasField("run_stopped"):
                run = response.event.run_stopped.run
    finally:
        # Nobody may wait for a phase that a broken stream will never show.
        reached.set()
    ended = time.perf_counter()
    if run is None:
        raise Unexpected("a stream ended before its run did")
    return run, ended


def _note_receipt(phase: Phase, run: run_pb2.Run, began_at: float, times: Times) -> None:
    receipt = run.cancel
    if run.state != run_pb2.Run.STATE_CANCELLED or receipt.phase != phase.kind:
        raise Unexpected(f"{phase.name}: the run is in state {run.state}, its receipt says phase {receipt.phase}")
    requested, seen, terminal = _at(receipt.request_time), _at(receipt.seen_time), _at(receipt.terminal_time)
    times.seen.append(seen - requested)
    closed = None
    for stage in ("model_closed_time", "tools_stopped_time"):
        if receipt.HasField(stage):
            closed = _at(getattr(receipt, stage))
    if closed is not None:
        times.closed.append(closed - began_at)
        times.stopped.append(closed - seen)
    times.terminal.append(terminal - (closed or seen))


def _add(table: Table, phase: Phase, others: int, times: Times) -> None:
    closed: dict[str, Cell] = {"closed_p50_ms": None, "closed_p99_ms": None}
    table.add(
        phase=phase.name,
        other_streams=others,
        tries=len(times.ended),
        **spread_ms(times.answered, "call_"),
        **(spread_ms(times.closed, "closed_") if times.closed else closed),
        **spread_ms(times.ended, "end_"),
        asked_to_seen=percentile(times.seen, 50) * 1e3,
        seen_to_closed=percentile(times.stopped, 50) * 1e3 if times.stopped else None,
        to_terminal=percentile(times.terminal, 50) * 1e3,
    )


def _at(stamp: Any) -> float:
    return float(stamp.seconds + stamp.nanos / 1e9)
