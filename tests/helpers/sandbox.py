"""A sandbox that runs nothing: it remembers jobs and answers as a test tells it."""

import asyncio

from services.sandbox.model import Job, Reason, Result
from tests.helpers.models import Gate


class ScriptedSandbox:
    """Answers every job with `result`; a gate holds it until the test lets it go on."""

    def __init__(self, result: Result | None = None, gate: Gate | None = None) -> None:
        self.result = result or Result(Reason.OK, value='"done"')
        self.gate = gate or Gate(is_open=True)
        self.jobs: list[Job] = []
        self.killed = 0

    async def run(self, job: Job) -> Result:
        """One job."""
        self.jobs.append(job)
        try:
            await self.gate.pass_through()
        except asyncio.CancelledError:
            self.killed += 1
            raise
        return self.result
