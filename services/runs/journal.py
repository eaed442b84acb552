"""What an actor writes: checkpoints, deltas between them, and the end of its ownership, all with its epoch."""

import asyncio
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from common.clock import Clock
from common.db.engine import Database
from common.errors import Aborted, Unavailable
from services.runs.events import Entry
from services.runs.log import RESERVE, RunLog
from services.runs.model import Run, RunOutcome
from services.runs.protocol import Commit, Record, Restart, State
from services.runs.store.checkpoint import AlreadyDone, Checkpoint, SignalsWaiting, checkpoint, flush
from services.runs.store.claim import Claim, release
from services.runs.store.queries import get_run, read_events

P = ParamSpec("P")
T = TypeVar("T")

_RETRY_SECONDS = (0.05, 0.2, 0.5, 1.0, 2.0, 4.0)


class Journal:
    """The pen of one owner. It writes one thing at a time, in order."""

    def __init__(self, db: Database, clock: Clock, log: RunLog, node: str, claim: Claim) -> None:
        self._db = db
        self._clock = clock
        self._log = log
        self._node = node
        self._claim = claim
        self._checkpoints = 0
        self._preface = _void(claim)
        self.run: Run = claim.run
        self.tail = log.open(claim.run.id, claim.reserved_seq)

    async def commit(self, effect: Commit, state: State, outcome: RunOutcome, seen: int) -> list[Entry]:
        """Write a checkpoint, then show its events. SignalsWaiting if the run may not leave yet."""
        records = (*self._preface, *effect.records)
        live, first = self.tail.stage(len(records))
        cp = Checkpoint(
            run=self.run,
            epoch=self._claim.epoch,
            no=self._checkpoints,
            records=records,
            live=live,
            first_seq=first,
            reserved_seq=first + len(records) - 1 + RESERVE,
            state=effect.state,
            stop_reason=effect.stop_reason,
            snapshot=state,
            outcome=outcome,
            consumed_signal_no=seen,
            keep_owner=self._node,
            approval_ttl=effect.approval_ttl,
            now=self._clock.now(),
        )
        try:
            self.run, entries = await self._write(cp)
        except SignalsWaiting:
            self.tail.unstage(first, len(records))
            raise
        self._preface = ()
        self._checkpoints += 1
        self.tail.publish(entries, cp.reserved_seq)
        return entries

    async def _write(self, cp: Checkpoint) -> tuple[Run, list[Entry]]:
        try:
            return await self._persist(checkpoint, cp)
        except AlreadyDone:
            run = await self.read(get_run, cp.run.organization_id, cp.run.id)
            found = await self.read(read_events, cp.run.id, cp.first_seq - 1)
            # Whoever took the run over since then may have written more; that is not ours to show.
            return run, found[: len(cp.records)]

    async def flush(self) -> None:
        """Make what was shown durable."""
        live = self.tail.undurable()
        if live:
            reserved = live[-1].seq + RESERVE
            now = self._clock.now()
            await self._persist(flush, self.run.id, self._claim.epoch, self._checkpoints, live, reserved, now)
            self._checkpoints += 1
            self.tail.flushed(live[-1].seq, reserved)

    async def give_up(self) -> None:
        """End the ownership between two checkpoints; whoever is free takes the run."""
        await self.flush()
        await self._persist(release, self.run.id, self._claim.epoch)

    def close(self) -> None:
        """Stop showing things. Readers go on with the database."""
        self._log.close(self.run.id, self.tail)

    async def read(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read through a short outage of the database: it is no reason to give up what the run is doing."""
        for pause in _RETRY_SECONDS:
            try:
                return await self._db.lookup(fn, *args, **kwargs)
            except (Unavailable, Aborted):
                await asyncio.sleep(pause)
        return await self._db.lookup(fn, *args, **kwargs)

    async def _persist(self, fn: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Write through a short outage of the database. What is written this way is harmless when it is repeated."""
        for pause in _RETRY_SECONDS:
            try:
                return await self._db.write(fn, *args, **kwargs)
            except (Unavailable, Aborted):
                await asyncio.sleep(pause)
        return await self._db.write(fn, *args, **kwargs)


def _void(claim: Claim) -> tuple[Record, ...]:
    """What readers may have seen beyond the last checkpoint of an owner that crashed."""
    if claim.reserved_seq > claim.checkpoint_seq:
        return (Restart(claim.checkpoint_seq + 1, claim.reserved_seq),)
    return ()
