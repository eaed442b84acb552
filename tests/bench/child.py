"""A helper process of the bench: it says a line when it is ready, works until its input closes, may say a last line."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.helpers.server import ROOT, environment


@dataclass
class Child:
    """A running helper. `last` is what it said at its end, known after the block."""

    pid: int
    first: str
    last: str = ""


@asynccontextmanager
async def child(module: str, *args: str) -> AsyncIterator[Child]:
    """`python -m module args` for the length of a block; fails if it ends before that, or badly."""
    process = _start([sys.executable, "-m", module, *args])
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        started = Child(process.pid, await asyncio.to_thread(process.stdout.readline))
        if not started.first:
            raise RuntimeError(f"{module} did not start")
        yield started
        process.stdin.close()
        started.last = await asyncio.to_thread(process.stdout.read)
        if await asyncio.to_thread(process.wait):
            raise RuntimeError(f"{module} failed")
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)
        process.stdout.close()


def _start(command: list[str]) -> subprocess.Popen[str]:
    # Not asyncio's way of starting processes: uvloop forks, and gRPC complains about that.
    return subprocess.Popen(
        command, env=environment(), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


async def until_input_closes() -> None:
    """For the helper itself: returns when it should end."""
    await asyncio.to_thread(sys.stdin.read)


def say(line: str) -> None:
    """For the helper itself: tell the bench something."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
