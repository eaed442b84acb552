"""One actor owns one live run.

Signals and the outcomes of its own effects arrive in one mailbox, so there is one order of things. The actor carries
out what the machine decides: it commits, calls the model and runs tools as child tasks, and cancels them at once when
it is told to stop.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Iterable
from enum import StrEnum
from functools import partial
from typing import Any

from msgspec import Struct

from common.clock import Clock
from common.db.engine import Database
from common.errors import Aborted, Unavailable
from services.context.weights import Weights
from services.messages.model import ToolCall
from services.models.api import Models
from services.runs.compacting import CompactionWork
from services.runs.config import configure
from services.runs.events import ApprovalDecided, ApprovalRequested, ToolProgress
from services.runs.feed import ApprovalFeed
from services.runs.journal import Journal
from services.runs.log import RunLog
from services.runs.machine import advance
from services.runs.mailbox import Envelope, Mailbox, MailboxClosed, MailboxFull
from services.runs.metrics import RunMetrics
from services.runs.model import (
    AnswerSignal,
    CancelPhase,
    CancelReceipt,
    CancelSignal,
    NumberedSignal,
    Signal,
    SteerSignal,
)
from services.runs.outcome import outcome_of
from services.runs.protocol import (
    Answered,
    Broken,
    CallModel,
    Cancelled,
    Commit,
    Compact,
    Effect,
    Finish,
    Input,
    Passivate,
    Phase,
    Proceed,
    Recovered,
    RunTools,
    Start,
    State,
    Steered,
)
from services.runs.request import Requests
from services.runs.store.checkpoint import Fenced, SignalsWaiting
from services.runs.store.claim import Claim
from services.runs.store.signals import read_signals
from services.runs.traces import Traces
from services.runs.work import INTERNAL_ERROR, Children, ModelWork, run_tool
from services.tools.api import ToolContext, ToolRunner
from services.tools.catalog import ToolCatalog

logger = logging.getLogger(__name__)

_MAILBOX_SIZE = 1024
# Deltas become durable this long after they were shown, at the latest.
_FLUSH_SECONDS = 1.0


class Wake(Struct, frozen=True):
    """Something was said to the run: this signal, or whatever the database has."""

    signal: NumberedSignal | None = None


class Drain(Struct, frozen=True):
    """Give the run up at the next checkpoint."""


class Flush(Struct, frozen=True):
    """Make what was shown durable."""


class Exit(StrEnum):
    """How an actor ended."""

    STOPPED = "stopped"
    WAITING = "waiting"
    RELEASED = "released"
    FENCED = "fenced"
    LOST = "lost"


Mail = Wake | Drain | Flush | Input


class Engine(Struct, frozen=True):
    """What all actors of a node share."""

    db: Database
    clock: Clock
    models: Models
    catalog: ToolCatalog
    runner: ToolRunner
    log: RunLog
    feed: ApprovalFeed
    metrics: RunMetrics
    node: str
    default_model: str
    approval_ttl: float
    weights: Weights
    # Kept only if the operator wants them.
    traces: Traces | None = None


class RunActor:
    """The owner of one run, for as long as there is something to do for it."""

    def __init__(self, engine: Engine, claim: Claim) -> None:
        self._engine = engine
        self._claim = claim
        self._config = configure(claim, engine.default_model, engine.approval_ttl)
        self._state: State = claim.state.replace(epoch=claim.epoch)
        self._journal = Journal(engine.db, engine.clock, engine.log, engine.node, claim)
        self._mailbox: Mailbox[Mail] = Mailbox(_MAILBOX_SIZE)
        self._children = Children(claim.run.id)
        self._seen = claim.consumed_signal_no
        self._requests = Requests(claim, self._journal, engine.weights)
        self._receipt: CancelReceipt | None = claim.run.outcome.cancel
        # A crash cut the run off in the middle of something; False once the machine was told.
        self._resuming = claim.resumed and claim.state.phase in (Phase.MODEL, Phase.TOOLS)
        self._drains: list[Envelope[Mail]] = []
        self._flush_armed = False
        self._flush_due = False
        self._exit: Exit | None = None
        self._fields = {"fields": {"run_id": claim.run.id}}

    # --- for others -------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """What its writes are guarded by."""
        return self._claim.epoch

    def wake(self, signal: NumberedSignal | None = None) -> None:
        """Look at the signals soon. If the mailbox is full the next heartbeat says it again."""
        with contextlib.suppress(MailboxFull, MailboxClosed):
            self._mailbox.post(Wake(signal))

    async def drain(self) -> None:
        """Give the run up at its next checkpoint; returns when that has happened."""
        with contextlib.suppress(MailboxFull, MailboxClosed):
            await self._mailbox.ask(Drain())

    # --- the loop ---------------------------------------------------------------------------------------------------

    async def run(self) -> Exit:
        """Work until the run stops, waits, is given up or is taken away."""
        try:
            await self._guarded(self._begin())
            while self._exit is None:
                envelope = await self._mailbox.get()
                await self._guarded(self._handle(envelope))
            return self._exit
        finally:
            await self._children.stop()
            self._journal.close()
            for envelope in self._drains:
                envelope.answer()
            self._mailbox.close()

    async def _guarded(self, act: Coroutine[Any, Any, None]) -> None:
        """Whatever goes wrong in the server itself must not leave the run as it is for ever."""
        try:
            await act
        except Fenced:
            self._engine.metrics.fenced.inc()
            logger.warning("the run has another owner now", extra=self._fields)
            self._exit = Exit.FENCED
        except (Unavailable, Aborted):
            logger.exception("the run is given up because the database does not answer", extra=self._fields)
            self._exit = Exit.LOST
        except Exception:
            logger.exception("the run broke", extra=self._fields)
            await self._break()

    async def _break(self) -> None:
        await self._children.stop()
        try:
            await self._apply(Broken(INTERNAL_ERROR))
        except Exception:
            logger.exception("the run could not be failed and is given up", extra=self._fields)
            self._exit = Exit.LOST

    async def _begin(self) -> None:
        await self._hear(self._claim.signals)
        if self._exit is not None:
            return
        if self._resuming:
            self._resuming = False
            await self._apply(Recovered(self._claim.epoch))
        elif self._state.phase is Phase.NEW:
            await self._apply(Start(self._journal.run.request.messages))
        elif self._state.phase is Phase.WAITING:
            await self._give_up()

    async def _handle(self, envelope: Envelope[Mail]) -> None:
        match envelope.message:
            case Wake(signal=signal) if signal is not None and signal.no == self._seen + 1:
                await self._hear([signal])
            case Wake():
                await self._take_signals()
            case Drain():
                self._drains.append(envelope)
            case Flush():
                await self._flush()
            case outcome:
                await self._apply(outcome)
        if self._drains and self._exit is None and not self._children and not len(self._mailbox):
            # Nothing runs, and nothing that has run is unheard.
            await self._give_up()

    # --- signals ----------------------------------------------------------------------------------------------------

    async def _take_signals(self) -> None:
        await self._hear(await self._journal.read(read_signals, self._claim.run.id, self._seen))

    async def _hear(self, signals: Iterable[NumberedSignal]) -> None:
        for numbered in signals:
            # A commit under way may have heard it first.
            if numbered.no > self._seen:
                self._seen = numbered.no
                await self._on_signal(numbered.signal)

    async def _on_signal(self, signal: Signal) -> None:
        match signal:
            case CancelSignal():
                await self._cancel(signal)
            case SteerSignal(messages=messages):
                await self._apply(Steered(messages))
            case AnswerSignal():
                await self._answer(signal)

    async def _answer(self, signal: AnswerSignal) -> None:
        if signal.client_tools and signal.approval_id == self._state.approval_id:
            engine = self._engine
            self._config = configure(self._claim, engine.default_model, engine.approval_ttl, signal.client_tools)
        answer = Answered(signal.approval_id, signal.decisions, signal.follow_up, signal.client_tools, signal.state)
        await self._apply(answer)

    async def _cancel(self, signal: CancelSignal) -> None:
        clock = self._engine.clock
        seen_at, phase = clock.now(), self._phase()
        model, tools = self._children.model, self._children.tools
        await self._children.stop()
        self._receipt = CancelReceipt(
            requested_at=signal.requested_at,
            requested_by=signal.requested_by,
            reason=signal.reason,
            phase=phase,
            seen_at=seen_at,
            model_closed_at=clock.now() if model is not None else None,
            tools_stopped_at=clock.now() if tools else None,
        )
        await self._apply(model.cut() if model is not None else Cancelled(lost=self._resuming))

    def _phase(self) -> CancelPhase:
        match self._state.phase:
            case Phase.NEW:
                return CancelPhase.QUEUED
            case Phase.WAITING:
                return CancelPhase.AWAITING_APPROVAL
            case Phase.TOOLS:
                return CancelPhase.TOOLS
            case Phase.COMPACTING:
                return CancelPhase.COMPACTING
        model = self._children.model
        if model is None:
            return CancelPhase.BETWEEN_STEPS
        return CancelPhase.STREAMING if model.streaming else CancelPhase.FIRST_TOKEN

    # --- decisions and their effects --------------------------------------------------------------------------------

    async def _apply(self, event: Input) -> None:
        while True:
            state, effects = advance(self._state, self._config, event)
            try:
                for effect in effects:
                    if isinstance(effect, Commit):
                        await self._commit(effect, state)
            except SignalsWaiting:
                # The run was about to stop while somebody spoke to it. It hears them first, then thinks again.
                await self._take_signals()
                continue
            self._state = state
            if state.phase is not Phase.MODEL:
                # Not before its turn is stored: a cancel that comes first must keep what was shown of it.
                self._children.model = None
            for effect in effects:
                await self._perform(effect)
            return

    async def _commit(self, effect: Commit, state: State) -> None:
        outcome = outcome_of(effect, state, self._receipt, self._engine.clock.now())
        entries = await self._journal.commit(effect, state, outcome, self._seen)
        self._requests.added(entries)
        if any(isinstance(entry.event, ApprovalRequested | ApprovalDecided) for entry in entries):
            self._engine.feed.ring()
        if effect.state.final:
            self._engine.metrics.stopped(self._journal.run)

    async def _perform(self, effect: Effect) -> None:
        match effect:
            case CallModel() | Compact() if self._drains:
                await self._give_up()
            case CallModel():
                self._start_model(effect)
            case Compact():
                self._start_compaction(effect)
            case RunTools(calls=calls):
                for call in calls:
                    self._start_tool(call)
            case Proceed():
                await self._apply(effect)
            case Passivate():
                self._exit = Exit.WAITING
            case Finish():
                self._exit = Exit.STOPPED

    async def _give_up(self) -> None:
        await self._journal.give_up()
        self._exit = Exit.RELEASED

    def _start_model(self, effect: CallModel) -> None:
        engine, run = self._engine, self._claim.run
        trace = engine.traces.of(run, self._claim.epoch, effect.step_id) if engine.traces is not None else None
        work = ModelWork(effect, run.organization_id, self._config.model, self._journal.tail, engine.clock, trace)
        self._children.model = work

        async def call() -> None:
            request = partial(self._requests.build, effect, self._config)
            outcome = await work.run(engine.models, request, self._wait_for_room)
            await self._report(outcome)

        self._children.start(call())
        self._flush_later()

    def _start_compaction(self, effect: Compact) -> None:
        work = CompactionWork(effect, self._claim.run.organization_id, self._engine.metrics.compactions)
        self._children.model = work

        async def call() -> None:
            job = partial(self._requests.compaction, effect, self._config)
            await self._report(await work.run(self._engine.models, job))

        self._children.start(call())

    def _start_tool(self, call: ToolCall) -> None:
        def progress(text: str) -> None:
            # A number that is not reserved could mean something else after a crash: who says too much is not shown.
            if not self._journal.tail.full:
                self._journal.tail.append(ToolProgress(call.id, text))
            self._flush_later()

        run = self._claim.run
        tool_context = ToolContext(run.organization_id, run.agent_id, run.id, call.id, progress)
        tool = self._config.tools[call.name]

        async def work() -> None:
            done = await run_tool(self._engine.runner, tool, call, tool_context, self._engine.clock)
            self._children.tools -= 1
            await self._report(done)

        self._children.tools += 1
        self._children.start(work())

    async def _report(self, outcome: Input) -> None:
        """An outcome that nobody waits for any more is dropped: the run has ended or has another owner."""
        with contextlib.suppress(MailboxClosed):
            await self._mailbox.put(outcome)

    # --- deltas -----------------------------------------------------------------------------------------------------

    def _flush_later(self) -> None:
        if not self._flush_armed:
            self._flush_armed = True
            asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self._flush_soon)

    def _flush_soon(self) -> None:
        self._flush_armed = False
        if self._exit is None and self._children and not self._flush_due:
            with contextlib.suppress(MailboxFull, MailboxClosed):
                self._mailbox.post(Flush())
                self._flush_due = True

    async def _flush(self) -> None:
        self._flush_due = False
        await self._journal.flush()
        if self._children.model is not None:
            self._flush_later()

    async def _wait_for_room(self) -> None:
        """More was shown than may be before it is durable: wait for the database."""
        while self._journal.tail.full:
            self._flush_soon()
            await asyncio.sleep(0.01)
