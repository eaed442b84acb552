"""Keeps what was sent to providers and what came back, beside the runs: they never wait for it."""

import asyncio
import logging

from common.clock import Clock
from common.db.engine import Database
from common.errors import FailedPrecondition
from common.seal import Seal
from services.agents import secrets
from services.models.trace import Call, shown
from services.models.watching import CallWatch
from services.runs.model import Run
from services.runs.store import traces as store

logger = logging.getLogger(__name__)


class Traces:
    """Writes traces, each in a task of its own."""

    def __init__(self, db: Database, clock: Clock, seal: Seal, most_bytes: int) -> None:
        self._db = db
        self._clock = clock
        self._seal = seal
        self._most_bytes = most_bytes
        self._writing: set[asyncio.Task[None]] = set()

    def of(self, run: Run, epoch: int, step_id: str) -> "StepTrace":
        """The trace of one step, to be written when its call ends."""
        return StepTrace(self, run, epoch, step_id, CallWatch(self._most_bytes))

    async def settled(self) -> None:
        """Until what has ended so far is written."""
        if self._writing:
            await asyncio.wait(self._writing)

    def keep(self, run: Run, epoch: int, step_id: str, call: Call) -> None:
        """Write a trace soon."""
        task = asyncio.ensure_future(self._write(run, epoch, step_id, call))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    async def _write(self, run: Run, epoch: int, step_id: str, call: Call) -> None:
        try:
            hidden = await self._db.read(secrets.load, self._seal, run.agent_id)
            # Elsewhere: a body may hold megabytes of pictures.
            request, response = await asyncio.to_thread(shown, call, hidden.values(), self._most_bytes)
            trace = store.Trace(request, response)
            await self._db.write(store.put, run.organization_id, step_id, epoch, trace, self._clock.now())
        except FailedPrecondition:
            # What cannot be read cannot be hidden.
            logger.warning("a trace was not kept: the agent's secrets cannot be read", extra={"step_id": step_id})
        except Exception:
            logger.exception("a trace could not be kept", extra={"step_id": step_id})


class StepTrace:
    """The trace of one step."""

    def __init__(self, traces: Traces, run: Run, epoch: int, step_id: str, watch: CallWatch) -> None:
        self._traces = traces
        self._run = run
        self._epoch = epoch
        self._step_id = step_id
        self.watch = watch

    def end(self, call: Call) -> None:
        """The call is over."""
        self._traces.keep(self._run, self._epoch, self._step_id, call)
