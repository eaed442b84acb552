"""Clients in three languages, generated from proto/ with stock tools, against a real server process."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.clients.build import Example
from tests.clients.wire import wire_to
from tests.helpers.server import ServerProcess, running_server, start_server

# The first test of each language also builds its example.
pytestmark = pytest.mark.timeout(300)

_RESTARTED = "[the server was restarted: the model begins its turn again]"


class Running:
    """A client at work, and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.chunks: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self.chunks)

    async def read_until(self, wanted: str) -> None:
        """Read on until this was printed, or there is no more."""
        assert self._process.stdout is not None
        async with asyncio.timeout(15):
            while wanted not in self.text:
                chunk = await self._process.stdout.read(4096)
                assert chunk, f"ended without {wanted!r}: {self.text}"
                self.chunks.append(chunk.decode())

    async def end(self) -> int:
        """The exit code, once everything is read."""
        assert self._process.stdout is not None
        async with asyncio.timeout(15):
            self.chunks.append((await self._process.stdout.read()).decode())
            return await self._process.wait()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._process.send_signal(signal.SIGINT)


@asynccontextmanager
async def started(example: Example, address: str, text: str) -> AsyncIterator[Running]:
    process = await asyncio.create_subprocess_exec(
        *example.command,
        address,
        text,
        env={**os.environ, **example.environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def counted(to: int) -> str:
    """What the demo model says when it counts."""
    return "".join(f"{number} " for number in range(1, to + 1))


async def test_tokens_arrive_one_by_one(example: Example, server: ServerProcess) -> None:
    async with started(example, server.grpc_address, "count to 20") as client:
        await client.read_until("COMPLETED")
        assert await client.end() == 0
    assert client.text == f"{counted(20)}\nCOMPLETED\n"
    assert len(client.chunks) > 5


async def test_interrupt_cancels_the_run(example: Example, server: ServerProcess) -> None:
    async with started(example, server.grpc_address, "count to 100000") as client:
        await client.read_until("3 ")
        client.interrupt()
        assert await client.end() == 0
    assert client.text.endswith("\nCANCELLED\n")


async def test_a_cut_connection_loses_and_repeats_nothing(example: Example, server: ServerProcess) -> None:
    async with wire_to(server.grpc_address) as (wire, address), started(example, address, "count to 30") as client:
        await client.read_until("5 ")
        wire.cut()
        assert await client.end() == 0
        assert wire.cuts == 1
    assert client.text == f"{counted(30)}\nCOMPLETED\n"


async def test_a_killed_server_is_found_again(example: Example) -> None:
    async with running_server() as first, started(example, first.grpc_address, "count to 30") as client:
        await client.read_until("5 ")
        await first.kill()
        second = await start_server(**first.settings)
        try:
            assert await client.end() == 0
        finally:
            await second.kill()
    assert client.text.endswith(f"\n{_RESTARTED}\n{counted(30)}\nCOMPLETED\n")
