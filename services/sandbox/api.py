"""What callers need of a sandbox."""

from typing import Protocol

from services.sandbox.model import Job, Result


class Runs(Protocol):
    """Runs jobs; `Sandbox` does. Cancelling the awaiting task kills the code and returns when it is gone."""

    async def run(self, job: Job) -> Result:
        """The job's outcome. Failing code is an outcome, not an exception."""
        ...
