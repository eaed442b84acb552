"""Streams: what a token costs on its way to a client, next to a bare grpc.aio server that sends the same messages."""

import time
from collections.abc import Callable
from typing import Any

import grpc.aio

from tests.bench.child import child
from tests.bench.floor import stream as floor_stream
from tests.bench.process import cpu_seconds
from tests.bench.report import Table, spread_ms
from tests.bench.rig import Unexpected, rig, spread_over

_TOKENS = 1000

# Opens the stream of one worker.
Open = Callable[[int], Any]


async def run(quick: bool) -> Table:
    """StreamMessage `count to 1000` on demo/echo, on one stream and on 16 at once."""
    table = Table("stream", f"`count to {_TOKENS}` on demo/echo; TTFT = time to first token; ratio = to bare grpc.aio")
    async with (
        child("tests.bench.floor") as floor,
        grpc.aio.insecure_channel(f"127.0.0.1:{int(floor.first)}") as channel,
        rig() as bench,
    ):
        agents = [await bench.client.create_agent() for _ in range(16)]
        for streams, rounds in ((1, 5 if quick else 20), (16, 2 if quick else 5)):
            bare = await _measure(
                table, "bare grpc.aio", floor.pid, streams, rounds, lambda _: floor_stream(channel, _TOKENS)
            )
            await _measure(
                table,
                "StreamMessage",
                bench.server.process.pid,
                streams,
                rounds,
                lambda worker: bench.client.stream(agents[worker], f"count to {_TOKENS}"),
                bare,
            )
    return table


async def _measure(
    table: Table, server: str, pid: int, streams: int, rounds: int, opened: Open, bare: float | None = None
) -> float:
    """Add a row; the server's CPU seconds per token."""
    first: list[float] = []

    async def one(worker: int, _number: int) -> None:
        first.append(await _read(opened(worker)))

    cpu, began = cpu_seconds(pid), time.perf_counter()
    await spread_over(streams, rounds, one)
    wall, cpu = time.perf_counter() - began, cpu_seconds(pid) - cpu
    tokens = len(first) * _TOKENS
    each = cpu / tokens
    table.add(
        server=server,
        streams=streams,
        tokens=tokens,
        tokens_per_s=tokens / wall,
        **spread_ms(first, "TTFT_"),
        server_CPU_us_per_token=each * 1e6,
        ratio=each / bare if bare else 1.0,
    )
    return each


async def _read(call: Any) -> float:
    """Read a stream to its end; seconds to its first token."""
    began, first, tokens = time.perf_counter(), 0.0, 0
    async for response in call:
        if response.event.HasField("text_delta"):
            first = first or time.perf_counter() - began
            tokens += 1
    if tokens != _TOKENS:
        raise Unexpected(f"{tokens} tokens came, not {_TOKENS}")
    return first
