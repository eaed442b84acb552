"""One schedule from its seed to its verdict."""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from unittest import mock

from msgspec import Struct

from services.runs import actor, journal, log
from services.runs.mailbox import Mailbox
from services.runs.model import ApprovalState, RunState
from services.runs.protocol import ToolDone
from tests.simulation.client import Client
from tests.simulation.cluster import Cluster
from tests.simulation.database import NodeDead
from tests.simulation.ledger import Ledger
from tests.simulation.nemesis import torment
from tests.simulation.node import Stage, Workbench
from tests.simulation.template import PLACES, image
from tests.simulation.verdict import Verdict
from tests.simulation.witness import RunRow
from tests.simulation.world import Violation, World

if TYPE_CHECKING:
    from tests.simulation.reader import Reader

_SETTLE_SECONDS = 90.0
_READERS_SECONDS = 40.0
# Heartbeats, clocks that disagree, and nodes that stand still for a while.
_SLACK_SECONDS = 12.0
# A node that has nothing to do runs its heartbeat, its pump and its counter, and nothing else.
_IDLE_TASKS = 3


class Outcome(Struct, frozen=True):
    """What came of a seed; `failure` is empty if every promise was kept."""

    seed: int
    failure: str = ""


def run_seed(seed: int, bench: Workbench, *, trace: bool = False) -> Outcome:
    """Run one schedule. The same seed does the same, always."""
    world = World(seed, trace=trace)
    stage = Stage(world, image(), bench)
    world.loop.set_exception_handler(lambda _, context: _unhandled(world, context))
    failure = ""
    try:
        with _tuned(world), _listening(world):
            world.loop.run_until_complete(_Play(stage).run())
    except Exception as error:
        if trace:
            raise
        failure = f"{type(error).__name__}: {error}"
    finally:
        # Where one promise was broken, another may be broken on the way out.
        with contextlib.suppress(*([Violation] if failure else [])):
            _dispose(world)
    return Outcome(seed, failure)


class _Play:
    """A schedule in three acts: danger, calm, and a last word to every conversation."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._world = stage.world
        self._cluster = Cluster(stage)
        self._ledger = Ledger()
        self._readers: list[Reader] = []
        stage.witness.on_final = self._on_final

    async def run(self) -> None:
        rng = self._world.rng
        self._world.trace(f"{self._world.hazards}")
        self._cluster.start()
        clients = [self._client() for _ in range(rng.choice((1, 2, 3)))]
        nemesis = asyncio.ensure_future(torment(self._stage, self._cluster))
        await asyncio.gather(*(client.run(rng.choice((3, 6, 10))) for client in clients))
        nemesis.cancel()
        self._world.hazards.calm = True
        self._world.trace("calm")
        await self._settle()
        await self._let_expire()
        await self._last_words(clients[0])
        for client in clients:
            await client.finish_reading(_READERS_SECONDS)
        for reader in self._readers:
            final = self._stage.witness.runs[reader.run_id].final
            self._world.check(reader.ended or not final, f"6: a reader of {reader.run_id} never came to its end")
        Verdict(self._stage, self._ledger, self._readers).judge()
        self._cluster.stop()

    def _client(self) -> Client:
        return Client(self._stage, self._cluster, self._ledger, self._readers)

    def _on_final(self, before: RunRow | None, run: RunRow, node: str) -> None:
        """The run is over: so must be its work on the node that ended it, except for tools that do not listen."""
        if before is not None and before.state == RunState.RUNNING:
            self._stage.studio.check_stopped(run, node)
        left = [
            each
            for each in self._stage.workshop.running
            if each.run_id == run.id and each.node == node and each.name != "stubborn"
        ]
        self._world.check(not left, f"2: {run.id} is {run.state} and {left} still run")

    async def _settle(self) -> None:
        """Everything comes to an end, or waits for a person, and then costs nothing."""
        deadline = self._world.loop.time() + _SETTLE_SECONDS
        while self._busy() or any(len(node.own_tasks()) > _IDLE_TASKS for node in self._cluster.alive()):
            if self._world.loop.time() > deadline:
                tasks = [task for node in self._cluster.alive() for task in node.own_tasks()]
                self._world.fail(f"3, 8: never came to rest: {self._busy()} {tasks}")
            await asyncio.sleep(0.2)

    def _busy(self) -> list[RunRow]:
        """Runs that have something to do."""
        witness = self._stage.witness
        asked = {a.run_id for a in witness.approvals.values() if a.state is ApprovalState.PENDING}
        waiting = {row.conversation_id for row in witness.runs.values() if row.active and row.id in asked}
        return [
            row for row in witness.runs.values() if not row.final and (row.news or not self._rests(row, asked, waiting))
        ]

    def _rests(self, row: RunRow, asked: set[str], waiting: set[str]) -> bool:
        if row.state == RunState.AWAITING_APPROVAL:
            return row.id in asked
        return row.state == RunState.QUEUED and row.conversation_id in waiting

    async def _let_expire(self) -> None:
        """Nobody answers: where there is a limit to that, what waits goes on without an answer."""
        asked = [a for a in self._stage.witness.approvals.values() if a.state is ApprovalState.PENDING]
        limit = self._world.hazards.approval_ttl
        if asked and limit:
            await asyncio.sleep(limit + _SLACK_SECONDS)
            left = [a.id for a in asked if self._stage.witness.approvals[a.id].state is ApprovalState.PENDING]
            self._world.check(not left, f"3: nobody answered {left} in time and they are still open")
            await self._settle()

    async def _last_words(self, client: Client) -> None:
        """Nobody is wedged: what waits can be stopped, and every conversation answers."""
        for _ in range(20):
            waiting = [row.id for row in self._stage.witness.runs.values() if not row.final]
            if not waiting:
                break
            for run_id in waiting:
                await client.cancel(run_id, 2)
            await self._settle()
        for place in PLACES[: 1 + self._world.seed % len(PLACES)]:
            run_id = await client.say(place)
            await self._settle()
            state = self._stage.witness.runs[run_id].state if run_id else "refused"
            self._world.check(state == RunState.COMPLETED, f"3: the last message to {place} came to {state}")


class _EchoingMailbox(Mailbox[Any]):
    """Delivers some messages twice: an owner must not mind."""

    world: World

    def post(self, message: Any, reply: asyncio.Future[Any] | None = None) -> None:
        """Leave a message, now and then also a copy."""
        super().post(message, reply)
        twice = isinstance(message, actor.Wake | actor.Flush | ToolDone)
        if twice and self.world.chance(self.world.hazards.double_mail):
            super().post(message)


@contextlib.contextmanager
def _tuned(world: World) -> Iterator[None]:
    """Small limits, so that a short schedule meets them."""
    mailbox = type("EchoingMailbox", (_EchoingMailbox,), {"world": world})
    with (
        mock.patch.object(log, "RESERVE", world.hazards.reserve),
        mock.patch.object(journal, "RESERVE", world.hazards.reserve),
        mock.patch.object(log, "_KEPT", world.hazards.kept),
        mock.patch.object(actor, "Mailbox", mailbox),
    ):
        yield


class _Listener(logging.Handler):
    """The engine says so itself when something went wrong that must not."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        self._world.trace(f"log: {text} {error!r}")
        if text in (
            "the run broke",
            "a model call broke",
            "a compaction broke",
            "a tool runner broke",
        ) and "!" not in str(error):
            self._world.fail(f"the engine broke: {text}: {error!r}")


@contextlib.contextmanager
def _listening(world: World) -> Iterator[None]:
    logger, listener = logging.getLogger("services"), _Listener(world)
    before = logger.propagate, logger.level
    logger.addHandler(listener)
    logger.propagate = False
    logger.setLevel(logging.DEBUG if world.tracing else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(listener)
        logger.propagate = before[0]
        logger.setLevel(before[1])


def _unhandled(world: World, context: dict[str, Any]) -> None:
    error = context.get("exception")
    world.trace(f"unhandled: {context}")
    if not isinstance(error, NodeDead):
        world.fail(f"a task died unheard: {context.get('message')} {error!r}")


def _dispose(world: World) -> None:
    """Let go of every task, so that nothing of this schedule runs in the next one."""
    world.hazards.calm = True
    world.loop.dispose()
