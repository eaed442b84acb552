"""A node: the real engine and the real servicers in a process that can crash, freeze and drain."""

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any, cast

from prometheus_client import CollectorRegistry

from common.db.sqlite import InlineSqlite
from common.ids import DEFAULT_ORGANIZATION, Prefix
from common.pb.bridle.v1.run_service_pb2_grpc import RunServiceStub, add_RunServiceServicer_to_server
from common.rpc.context import CallContext, enter_call
from common.rpc.local import LocalChannel
from services.context.weights import Weights
from services.conversations.compact import Compaction, Compactor
from services.messages.preview import Previews
from services.messages.servicer import MessageServicer
from services.models import tokens
from services.runs.actor import Engine
from services.runs.approval_servicer import ApprovalServicer
from services.runs.feed import ApprovalFeed
from services.runs.log import RunLog
from services.runs.metrics import RunMetrics
from services.runs.model import NumberedSignal
from services.runs.servicer import RunServicer
from services.runs.supervisor import Supervisor
from services.runs.watch import ApprovalWatch
from tests.simulation.database import FaultyDatabase
from tests.simulation.loop import NODE, SimTask
from tests.simulation.models import ASKED, SimModels, Studio
from tests.simulation.tools import SimTools, Workshop
from tests.simulation.witness import Witness
from tests.simulation.world import NodeClock, World

if TYPE_CHECKING:
    import grpc.aio

_HEARTBEAT_SECONDS = 3.0


class Workbench:
    """What all schedules of a process use one after the other, because it is slow to make."""

    def __init__(self) -> None:
        # Loading it takes a thread, and a schedule has none.
        tokens.load()
        # Nobody reads them.
        self.metrics = RunMetrics(CollectorRegistry())
        # Its engine has compiled every statement.
        self._db = InlineSqlite()

    def database(self, image: bytes) -> InlineSqlite:
        """The database, as it was at the beginning."""
        found: list[Any] = []
        run(self._db.read(lambda conn: found.append(conn.connection.driver_connection)))
        found[0].deserialize(image)
        return self._db


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run something that never really waits."""
    with contextlib.suppress(StopIteration):
        work.send(None)


class Stage:
    """What the nodes of a schedule share."""

    def __init__(self, world: World, image: bytes, bench: Workbench) -> None:
        self.world = world
        self.db = bench.database(image)
        self.metrics = bench.metrics
        self.witness = Witness(world)
        self.workshop = Workshop(world, self.witness)
        self.studio = Studio(world, self.witness)


class FlakySupervisor(Supervisor):
    """What servicers tell it may be lost, late, doubled or out of order."""

    world: World

    def offer(self, run_id: str, conversation_id: str) -> None:
        """A run was accepted."""
        if not self.world.chance(self.world.hazards.lost_wake):
            super().offer(run_id, conversation_id)

    def wake(self, run_ids: Iterable[str], signal: NumberedSignal | None = None) -> None:
        """Something was said to these runs."""
        world, wake = self.world, super().wake
        for run_id in run_ids:
            if world.chance(world.hazards.lost_wake):
                continue
            if world.chance(world.hazards.slow_wake):
                asyncio.get_running_loop().call_later(world.rng.uniform(0, 0.5), wake, [run_id], signal)
            if world.chance(world.hazards.double_mail):
                wake([run_id], signal)
            wake([run_id], signal)


class Node:
    """One process."""

    def __init__(self, stage: Stage, *, embedded: bool) -> None:
        world = self._world = stage.world
        self.name = world.ids(Prefix.NODE)
        self.dead = False
        self.ready = False
        self.gone: asyncio.Future[None] = world.loop.create_future()
        self._calls: list[SimTask] = []
        self._context = contextvars.copy_context()
        self._context.run(NODE.set, self.name)
        self._context.run(enter_call, CallContext("", "simulation"))
        self._db = FaultyDatabase(world, self, stage.db, stage.witness)
        clock = NodeClock(world, 0.0 if embedded else world.rng.uniform(-0.5, 0.5))
        self.log = RunLog(self._db, clock, _HEARTBEAT_SECONDS)
        self._feed = self._context.run(ApprovalFeed)
        tools = SimTools(world, stage.workshop, self)
        models, weights = SimModels(world, stage.studio, self), Weights()
        self._compactor = Compactor(
            db=self._db,
            clock=clock,
            models=models,
            default_model="sim/model",
            weights=weights,
            metrics=stage.metrics.compactions,
            ids=world.ids,
        )
        engine = Engine(
            db=self._db,
            clock=clock,
            models=models,
            catalog=tools,
            runner=tools,
            log=self.log,
            feed=self._feed,
            metrics=stage.metrics,
            node=self.name,
            default_model="sim/model",
            approval_ttl=world.hazards.approval_ttl,
            weights=weights,
        )
        self._supervisor = self._context.run(self._new_supervisor, engine, embedded)
        self._serve(clock, models, Previews(db=self._db, catalog=tools, models=models, default_model="sim/model"))

    def _new_supervisor(self, engine: Engine, embedded: bool) -> FlakySupervisor:
        supervisor = FlakySupervisor(engine, address="", max_runs=self._world.hazards.max_runs, embedded=embedded)
        supervisor.world = self._world
        return supervisor

    def _serve(self, clock: NodeClock, models: SimModels, previews: Previews) -> None:
        db, supervisor = self._db, self._supervisor
        self.runs = RunServicer(
            db=db,
            clock=clock,
            supervisor=supervisor,
            log=self.log,
            knows_model=models.knows,
            check_callback=lambda _: None,
            ids=self._world.ids,
        )
        watch = ApprovalWatch(db, clock, self._feed, _HEARTBEAT_SECONDS)
        self.approvals = ApprovalServicer(db=db, clock=clock, supervisor=supervisor, feed=self._feed, watch=watch)
        local = LocalChannel()
        add_RunServiceServicer_to_server(self.runs, local)  # type: ignore[arg-type]
        stub = RunServiceStub(cast("grpc.aio.Channel", local))
        self.messages = MessageServicer(db=db, runs=stub, previews=previews)

    # --- its life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to work; whoever fails to is restarted by somebody else."""
        self._world.trace(f"node {self.name[-4:]} starts")
        await self._spawn(self._supervisor.start())
        self.ready = True

    def crash(self) -> None:
        """kill -9: nothing of it has any effect from here on."""
        if self.dead:
            return
        self._world.trace(f"node {self.name[-4:]} crashes")
        self.dead, self.ready = True, False
        self._world.loop.thaw(self.name)
        for task in self._world.loop.tasks_of(self.name):
            task.cancel()
        if not self.gone.done():
            self.gone.set_result(None)

    async def drain(self, grace: float) -> None:
        """SIGTERM."""
        self._world.trace(f"node {self.name[-4:]} drains")
        self.ready = False
        with contextlib.suppress(asyncio.CancelledError):
            await self._spawn(self._supervisor.drain(grace))
        self.log.end()
        await asyncio.sleep(0.5)
        self.crash()

    # --- for clients --------------------------------------------------------------------------------------------------

    def call(self, work: Coroutine[Any, Any, Any]) -> SimTask:
        """Serve a call: it runs in this process and dies with it."""
        task = self._spawn(work)
        self._calls.append(task)
        return task

    async def compact(self, conversation_id: str) -> Compaction:
        """Summarise a conversation, whatever is going on in it."""
        ASKED.set(True)
        return await self._compactor.compact(DEFAULT_ORGANIZATION, conversation_id)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> SimTask:
        task = self._world.loop.create_task(work, context=self._context.copy())
        assert isinstance(task, SimTask)
        if self.dead:
            task.cancel()
        return task

    def own_tasks(self) -> list[SimTask]:
        """What runs here apart from the calls of clients."""
        return [task for task in self._world.loop.tasks_of(self.name) if task not in self._calls]
