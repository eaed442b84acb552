"""The actors of this node: starts and wakes them, finds runs that nobody works on, gives all up on the way out."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Coroutine, Iterable
from datetime import timedelta
from typing import Any

from common.errors import NotFound
from services.runs.actor import Engine, Exit, RunActor
from services.runs.model import CancelSignal, NumberedSignal, Run
from services.runs.store import approvals as approval_store
from services.runs.store.census import census
from services.runs.store.claim import (
    Claim,
    beat,
    cancel_and_claim,
    claim,
    forget_other_nodes,
    leave,
    let_go,
    next_in_line,
    release,
    release_orphans,
    runnable,
)
from services.runs.store.retention import sweep
from services.runs.store.signals import request_cancel, runs_with_news

logger = logging.getLogger(__name__)

# Signals are looked for this often, so a lost wake costs at most this much.
_TICK_SECONDS = 1.0
# A node that has not said anything for so long is dead.
_DEAD_AFTER = timedelta(seconds=5)
_CANDIDATES = 64
_JANITOR_SECONDS = 60.0
_CENSUS_SECONDS = 10.0


class Supervisor:
    """Run id to actor on this node. Bounded: at most `max_runs` actors work at a time."""

    def __init__(
        self, engine: Engine, *, address: str, max_runs: int, embedded: bool, retention: timedelta | None = None
    ) -> None:
        self._engine = engine
        self._address = address
        self._max_runs = max_runs
        self._embedded = embedded
        self._retention = retention
        self._actors: dict[str, RunActor] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._starting: set[str] = set()
        # Spoken to while they were being taken up: the signal may have come after they were read.
        self._woken: set[str] = set()
        # Runs that this node may own although no actor works on them: a claim or an actor ended without knowing.
        self._adrift: set[str] = set()
        self._candidates: deque[str] = deque()
        self._pump_due = asyncio.Event()
        # Conversations in which a run could not start because another one was in front of it.
        self._blocked: set[str] = set()
        self._draining = False

    async def start(self) -> None:
        """Say that this node lives, take over what dead ones left, and begin to work."""
        now = self._engine.clock.now()
        await self._engine.db.write(beat, self._engine.node, self._address, now)
        if self._embedded:
            await self._engine.db.write(forget_other_nodes, self._engine.node)
        await self._tick()
        self._spawn(self._ticker())
        self._spawn(self._pump())
        self._spawn(self._counter())
        if self._retention is not None:
            self._spawn(self._janitor(self._retention))

    @property
    def draining(self) -> bool:
        """Whether this node is on its way out."""
        return self._draining

    # --- what servicers say -------------------------------------------------------------------------------------------

    def offer(self, run_id: str, conversation_id: str) -> None:
        """A run was accepted: start it now if there is room, else when there is."""
        if self._free > 0 and not self._candidates and not self._draining:
            self._spawn(self._activate(run_id, conversation_id))
        else:
            self._pump_due.set()

    def wake(self, run_ids: Iterable[str], signal: NumberedSignal | None = None) -> None:
        """Something was said to these runs, durably; `signal` is what, if it is known."""
        for run_id in run_ids:
            actor = self._actors.get(run_id)
            if actor is not None:
                actor.wake(signal)
            elif run_id in self._starting:
                self._woken.add(run_id)
            elif not self._draining:
                # Not counted against the limit: what is said to a run must be heard however busy the node is.
                self._spawn(self._activate(run_id, signalled=True))

    async def cancel(self, organization_id: str, run_id: str, signal: CancelSignal) -> Run:
        """Make a cancel durable and see that it is heard; the run as it is when that has begun."""
        engine, now = self._engine, signal.requested_at
        if self._draining or run_id in self._actors or run_id in self._starting:
            run, added = await engine.db.write(request_cancel, organization_id, run_id, signal, now)
            if not run.state.final:
                self.wake([run_id], added)
            return run
        # Most likely nobody owns it: then it is ours with the same transaction, however busy this node is.
        self._starting.add(run_id)
        claimed: Claim | None = None
        try:
            run, claimed = await engine.db.write(
                cancel_and_claim, organization_id, run_id, signal, engine.node, now, engine.catalog
            )
        except NotFound:
            raise
        except BaseException:
            self._adrift.add(run_id)
            raise
        finally:
            if claimed is None:
                self._starting.discard(run_id)
        if claimed is not None:
            self._spawn(self._take_up(claimed))
        return run

    # --- starting -----------------------------------------------------------------------------------------------------

    @property
    def _free(self) -> int:
        return self._max_runs - len(self._actors) - len(self._starting)

    async def _activate(self, run_id: str, conversation_id: str = "", *, signalled: bool = False) -> None:
        if run_id in self._actors or run_id in self._starting:
            return
        self._starting.add(run_id)
        try:
            claimed = await self._engine.db.write(
                claim,
                run_id,
                self._engine.node,
                self._engine.clock.now(),
                self._engine.catalog,
                signalled=signalled,
            )
        except Exception:
            logger.exception("a run could not be taken up", extra={"fields": {"run_id": run_id}})
            self._adrift.add(run_id)
            return
        finally:
            self._starting.discard(run_id)
        if claimed is None:
            self._blocked.add(conversation_id)
        else:
            await self._take_up(claimed, conversation_id)

    async def _take_up(self, claimed: Claim, conversation_id: str = "") -> None:
        self._starting.discard(claimed.run.id)
        if self._draining:
            await self._engine.db.write(release, claimed.run.id, claimed.epoch)
            return
        if not conversation_id:
            # Found by looking, so it had waited: there may be another one behind it.
            self._blocked.add(claimed.run.conversation_id)
        await self._work(claimed)

    async def _work(self, claimed: Claim) -> None:
        run = claimed.run
        if not claimed.resumed:
            self._engine.metrics.started(run)
        ended = Exit.LOST
        try:
            actor = self._actors[run.id] = RunActor(self._engine, claimed)
            self._engine.metrics.active.set(len(self._actors))
            if run.id in self._woken:
                actor.wake()
            ended = await actor.run()
        finally:
            self._woken.discard(run.id)
            self._actors.pop(run.id, None)
            self._engine.metrics.active.set(len(self._actors))
            if ended is Exit.LOST:
                self._adrift.add(run.id)
        if ended is Exit.WAITING:
            # It may have been answered between its last commit and its end.
            self._pump_due.set()
        if self._free == 1:
            self._pump_due.set()
        if run.conversation_id in self._blocked:
            self._blocked.discard(run.conversation_id)
            # Those who wait for the end of this one go first.
            await asyncio.sleep(0)
            await self._offer_next(run.conversation_id)

    async def _offer_next(self, conversation_id: str) -> None:
        """Start what has waited for its turn in a conversation, if there is anything."""
        try:
            run_id = await self._engine.db.lookup(next_in_line, conversation_id)
        except Exception:
            logger.exception("looking for the next run failed")
            self._pump_due.set()
        else:
            if run_id is not None:
                self.offer(run_id, conversation_id)

    async def _pump(self) -> None:
        """Fill free places with runs that could be worked on, fairly between agents."""
        while True:
            await self._pump_due.wait()
            self._pump_due.clear()
            try:
                await self._fill()
            except Exception:
                logger.exception("looking for runs failed")

    async def _fill(self) -> None:
        while self._free > 0 and not self._draining:
            if not self._candidates:
                found = await self._engine.db.read(runnable, _CANDIDATES)
                self._candidates.extend(r for r in found if r not in self._actors and r not in self._starting)
                if not self._candidates:
                    return
            run_id = self._candidates.popleft()
            self._spawn(self._activate(run_id))
            # Lets it count itself before the next one is looked at.
            await asyncio.sleep(0)

    # --- the heartbeat ------------------------------------------------------------------------------------------------

    async def _ticker(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                await self._tick()
            except Exception:
                logger.exception("the heartbeat failed")

    async def _tick(self) -> None:
        engine, now = self._engine, self._engine.clock.now()
        await engine.db.write(beat, engine.node, self._address, now)
        for run_id in sorted(self._adrift):
            await self._let_go(run_id)
        orphans = await engine.db.write(release_orphans, now - _DEAD_AFTER)
        if orphans:
            engine.metrics.recovered.inc(len(orphans))
            logger.warning("runs lost their owner and are queued again", extra={"fields": {"count": len(orphans)}})
        self.wake(await engine.db.write(approval_store.expire, now))
        self.wake(await engine.db.lookup(runs_with_news, engine.node))
        self._pump_due.set()

    async def _let_go(self, run_id: str) -> None:
        if run_id in self._starting:
            return  # the next heartbeat looks again
        if run_id not in self._actors:
            # Nobody may take it up on this node meanwhile.
            self._starting.add(run_id)
            try:
                await self._engine.db.write(let_go, run_id, self._engine.node)
            finally:
                self._starting.discard(run_id)
        self._adrift.discard(run_id)

    async def _counter(self) -> None:
        while True:
            try:
                self._engine.metrics.counted(await self._engine.db.read(census), self._engine.clock.now())
            except Exception:
                logger.exception("counting runs failed")
            await asyncio.sleep(_CENSUS_SECONDS)

    async def _janitor(self, retention: timedelta) -> None:
        while True:
            try:
                await sweep(self._engine.db, self._engine.clock.now() - retention)
            except Exception:
                logger.exception("deleting old events failed")
            await asyncio.sleep(_JANITOR_SECONDS)

    # --- the end ------------------------------------------------------------------------------------------------------

    async def drain(self, grace: float) -> None:
        """Take no more runs, let the live ones reach a checkpoint, then give up the rest as they are."""
        self._draining = True
        asked = [asyncio.ensure_future(actor.drain()) for actor in list(self._actors.values())]
        if asked:
            await asyncio.wait(asked, timeout=grace)
        left = dict(self._actors)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for run_id, actor in left.items():
            with contextlib.suppress(Exception):
                await self._engine.db.write(release, run_id, actor.epoch)
        with contextlib.suppress(Exception):
            await self._engine.db.write(leave, self._engine.node)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
