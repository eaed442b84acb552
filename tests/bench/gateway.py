"""The gateway: what HTTP costs over gRPC alone, and many event streams at once."""

import asyncio
import json
import time
from typing import Any

from tests.bench.report import Table, percentile
from tests.bench.rig import Rig, Unexpected, rig, spread_over, timed

_TOKENS = 1000
_CROWD = 500
_CROWD_TOKENS = 20


class RawHttp:
    """One kept-alive connection that spends next to nothing itself: what is measured is the server."""

    def __init__(self, address: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> "RawHttp":
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=2**20)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    async def get(self, path: str) -> bytes:
        """The body of a small answer."""
        reader = self._send("GET", path, b"")
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        if not head.startswith(b"HTTP/1.1 200"):
            raise Unexpected(f"{path}: {head!r} {body!r}")
        return body

    async def stream(self, path: str, body: Any) -> int:
        """How many tokens an event stream brought, read to its end marker."""
        reader = self._send("POST", path, json.dumps(body).encode())
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise Unexpected(f"{path}: {head!r}")
        tokens, rest = 0, b""
        while not rest.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
            piece = await reader.read(2**16)
            if not piece:
                raise Unexpected("the stream was dropped")
            # A mark may be cut in two by the edge of a piece.
            joined = rest[-40:] + piece
            tokens += joined.count(b'"assistant_message"') - rest[-40:].count(b'"assistant_message"')
            rest = joined
        return tokens

    def _send(self, method: str, path: str, body: bytes) -> asyncio.StreamReader:
        if self._writer is None or self._reader is None:
            raise RuntimeError("not connected")
        head = f"{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}"
        self._writer.write(head.encode() + b"\r\n\r\n" + body)
        return self._reader


async def run(quick: bool) -> Table:
    """Unary reads, one stream of tokens, and 500 streams at once, each through gRPC and through HTTP."""
    table = Table("gateway", "HTTP next to gRPC on the same server; added = HTTP less gRPC")
    async with rig() as bench:
        await _unary(table, bench, 300 if quick else 2000)
        await _tokens(table, bench, 5 if quick else 20)
        await _crowd(table, bench)
    return table


async def _unary(table: Table, bench: Rig, calls: int) -> None:
    agent_id = await bench.client.create_agent()
    run_id = await bench.client.send(agent_id, "hello")
    async with RawHttp(bench.server.http_address) as http:
        path = f"/v1/runs/{run_id}"
        for _ in range(50):
            await http.get(path)
            await bench.client.get_run(run_id)
        # In turn, so that a busy machine is busy for both.
        grpc_s, http_s = [], []
        cpu_grpc = cpu_http = 0.0
        for _ in range(10):
            began = bench.cpu()
            grpc_s += [await timed(lambda: bench.client.get_run(run_id)) for _ in range(calls // 10)]
            between = bench.cpu()
            http_s += [await timed(lambda: http.get(path)) for _ in range(calls // 10)]
            cpu_grpc, cpu_http = cpu_grpc + between - began, cpu_http + bench.cpu() - between
    _row(table, "GetRun", 1, calls, percentile(grpc_s, 50), percentile(http_s, 50), cpu_grpc / calls, cpu_http / calls)


async def _tokens(table: Table, bench: Rig, rounds: int) -> None:
    agents = [await bench.client.create_agent() for _ in range(2)]
    said = f"count to {_TOKENS}"
    costs: dict[str, list[float]] = {"grpc": [], "http": []}
    walls: dict[str, list[float]] = {"grpc": [], "http": []}

    async def over_grpc() -> None:
        tokens = [r async for r in bench.client.stream(agents[0], said) if r.event.HasField("text_delta")]
        if len(tokens) != _TOKENS:
            raise Unexpected(f"{len(tokens)} tokens came")

    async def over_http() -> None:
        body = {"input": said, "stream_tokens": True}
        tokens = await http.stream(f"/v1/agents/{agents[1]}/messages/stream", body)
        if tokens != _TOKENS:
            raise Unexpected(f"{tokens} tokens came")

    async with RawHttp(bench.server.http_address) as http:
        for _ in range(rounds):
            for name, read in (("grpc", over_grpc), ("http", over_http)):
                began = bench.cpu()
                walls[name].append(await timed(read))
                costs[name].append(bench.cpu() - began)
    each = {name: sum(spent) / rounds / _TOKENS for name, spent in costs.items()}
    wall = {name: percentile(times, 50) / _TOKENS for name, times in walls.items()}
    _row(table, "token of a stream", 1, rounds * _TOKENS, wall["grpc"], wall["http"], each["grpc"], each["http"])


async def _crowd(table: Table, bench: Rig) -> None:
    """Slow streams, so that they are open all at once. One that is dropped ends the bench."""
    agents = [await bench.client.create_agent("demo/slow") for _ in range(_CROWD)]
    body = {"input": f"count to {_CROWD_TOKENS}", "stream_tokens": True}
    done = 0

    async def one(worker: int, _: int) -> None:
        nonlocal done
        async with RawHttp(bench.server.http_address) as http:
            tokens = await http.stream(f"/v1/agents/{agents[worker]}/messages/stream", body)
        if tokens != _CROWD_TOKENS:
            raise Unexpected(f"{tokens} tokens came, not {_CROWD_TOKENS}")
        done += 1

    began = time.perf_counter()
    await spread_over(_CROWD, 1, one)
    table.notes.append(f"{done} of {_CROWD} concurrent event streams complete in {time.perf_counter() - began:.1f} s")


def _row(
    table: Table, what: str, clients: int, count: int, grpc: float, http: float, grpc_cpu: float, http_cpu: float
) -> None:
    table.add(
        what=what,
        clients=clients,
        count=count,
        gRPC_p50_ms=grpc * 1e3,
        HTTP_p50_ms=http * 1e3,
        added_ms=(http - grpc) * 1e3,
        gRPC_CPU_us=grpc_cpu * 1e6,
        HTTP_CPU_us=http_cpu * 1e6,
        added_CPU_us=(http_cpu - grpc_cpu) * 1e6,
    )
