"""A sandbox to attack, and short ways to do so."""

import asyncio
import json
import os
import textwrap
from typing import Any

import pytest

from services.sandbox.model import Job, Limits, Reason, Result, Wall
from services.sandbox.sandbox import Sandbox
from tests.helpers.missing import missing

# Small enough that running into each takes no time.
LIMITS = Limits(
    wall_seconds=15.0,
    cpu_seconds=1,
    memory_bytes=192 * 2**20,
    processes=12,
    open_files=64,
    output_bytes=4096,
    output_most_bytes=2**21,
    value_bytes=64 * 2**10,
    disk_bytes=4 * 2**20,
    disk_files=200,
    concurrency=8,
)


SLEEP = "import time\ndef f(): time.sleep(1000)"


class Box:
    """A started sandbox."""

    def __init__(self, sandbox: Sandbox, *, plain: bool) -> None:
        self.sandbox = sandbox
        self._plain = plain

    async def run(self, source: str, wall_seconds: float | None = None, **arguments: Any) -> Result:
        """Call the function `f` of a source."""
        return await self.sandbox.run(self.job(source, wall_seconds, **arguments))

    @staticmethod
    def job(source: str, wall_seconds: float | None = None, **arguments: Any) -> Job:
        """A call of the function `f`."""
        env = {"AGENT_SECRET": "for this agent"}
        return Job(textwrap.dedent(source), "f", json.dumps(arguments), env=env, wall_seconds=wall_seconds)

    async def value(self, source: str, **arguments: Any) -> Any:
        """What a call returns; it must succeed."""
        result = await self.run(source, **arguments)
        assert result.reason is Reason.OK, result
        assert result.value is not None
        return json.loads(result.value)

    async def serves(self) -> None:
        """It still works."""
        assert await self.value("def f(): return 'fine'") == "fine"

    def files(self) -> list[str]:
        """What is in the folder that holds those of the calls; with namespaces there is none."""
        zygote = self.sandbox._zygote  # noqa: SLF001 - nobody else needs to know it
        folder = zygote._work if zygote else ""  # noqa: SLF001
        return os.listdir(folder) if folder else []

    def need(self, wall: Wall) -> None:
        """Skip the test, with a plain line, where a wall does not stand; fail it in CI if it should."""
        if wall not in self.sandbox.walls().standing:
            if self._plain and wall in (Wall.OWN_ROOT, Wall.OWN_PROCESSES):
                pytest.skip(f"the wall {wall} needs namespaces")
            missing(f"the wall {wall} does not stand here")

    def need_processes(self) -> None:
        """Skip the test where calls may not start processes."""
        if self.sandbox.walls().details.get(Wall.KILLABLE) == "calls may not start processes":
            pytest.skip("calls may not start processes here")


async def cancelled(call: "asyncio.Task[Result]") -> None:
    """Cancel a call and wait for its end."""
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
