"""Guards broken on purpose: a simulation that does not notice is worth nothing."""

# Mutants reach into what they break.
# ruff: noqa: SLF001

import contextlib
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple
from unittest import mock

import msgspec
from sqlalchemy import BindParameter, Column, Connection, Update, bindparam, true, update
from sqlalchemy.sql import visitors
from sqlalchemy.sql.elements import BinaryExpression
from sqlalchemy.sql.operators import eq

from common.db.tables import conversations
from services.context import compaction
from services.context.weights import Weighed
from services.messages.model import ToolReturn
from services.runs import journal, machine, supervisor, turns, work
from services.runs.protocol import Call, Config, FinishTool, Record, State, ToolDone
from services.runs.store import checkpoint, claim, create
from services.tools.api import CrashPolicy
from tests.simulation import world


def _without(statement: Update, column: str) -> Any:
    """The statement without its condition that this column equals a parameter."""

    def replace(element: Any, **_: Any) -> Any:
        if isinstance(element, BinaryExpression) and element.operator is eq:
            left, right = element.left, element.right
            if isinstance(left, Column) and left.name == column and isinstance(right, BindParameter):
                return true()
        return None

    return visitors.replacement_traverse(statement, {}, replace)


def _unguarded(column: str) -> AbstractContextManager[Any]:
    return mock.patch.object(checkpoint, "_GUARDED", _without(checkpoint._GUARDED, column))


@contextlib.contextmanager
def _epochless() -> Iterator[None]:
    """A zombie must come back at the right moment: many freeze, and what they do takes long."""
    honest = world.draw_hazards

    def icy(rng: random.Random) -> world.Hazards:
        return msgspec.structs.replace(honest(rng), cluster=True, strikes=0.5, crash=0.0, pace=4.0)

    with mock.patch.object(world, "draw_hazards", icy), _unguarded("owner_epoch"):
        yield


def _twice_done() -> AbstractContextManager[Any]:
    def careless(state: State, config: Config, done: ToolDone) -> machine.Step:
        calls = tuple(c.finished(done.result) if c.call.id == done.result.call_id else c for c in state.calls)
        return machine._take_in(state.replace(calls=calls), config, [FinishTool(done.result)])

    return mock.patch.dict(machine._HANDLERS, {ToolDone: careless})


def _hasty() -> AbstractContextManager[Any]:
    honest = journal.Journal._write

    def peek(conn: Connection, cp: checkpoint.Checkpoint) -> Any:
        nested = conn.begin_nested()
        try:
            return checkpoint.checkpoint(conn, cp)
        finally:
            nested.rollback()

    async def hasty(self: journal.Journal, cp: checkpoint.Checkpoint) -> Any:
        _, entries = await self._persist(peek, cp)
        self.tail.publish(entries, cp.reserved_seq)
        return await honest(self, cp)

    return mock.patch.object(journal.Journal, "_write", hasty)


def _reused_numbers() -> AbstractContextManager[Any]:
    honest = claim.claim

    def forgetful(conn: Connection, *args: Any, **kwargs: Any) -> claim.Claim | None:
        claimed = honest(conn, *args, **kwargs)
        return claimed and msgspec.structs.replace(claimed, reserved_seq=claimed.run.last_seq)

    return mock.patch.object(supervisor, "claim", forgetful)


def _deaf() -> AbstractContextManager[Any]:
    async def stay(self: work.Children) -> None:
        return

    return mock.patch.object(work.Children, "stop", stay)


def _steer_lost() -> AbstractContextManager[Any]:
    honest = machine._stop

    def forgetful(state: State, *args: Any) -> machine.Step:
        return honest(state.replace(joining=()), *args)

    return mock.patch.object(machine, "_stop", forgetful)


def _adrift() -> AbstractContextManager[Any]:
    async def keep(self: supervisor.Supervisor, run_id: str) -> None:
        return

    return mock.patch.object(supervisor.Supervisor, "_let_go", keep)


def _half_moved() -> AbstractContextManager[Any]:
    moved = update(conversations).where(conversations.c.id == bindparam("conversation_id"))
    return mock.patch.object(checkpoint, "_MOVE_FLOOR", moved.values(context_floor=bindparam("floor")))


def _anywhere(messages: Sequence[Weighed]) -> list[int]:
    return list(range(1, len(messages) + 1))


def _denied(call: Call, reason: str | None) -> ToolReturn:
    return turns.denial(call.call, reason)


async def _impatient(self: journal.Journal, fn: Callable[..., Any], *args: Any) -> Any:
    return await self._db.read(fn, *args)


def _always_retry(self: Config, name: str) -> CrashPolicy:
    return CrashPolicy.RETRY


def _silence(claimed: claim.Claim) -> tuple[Record, ...]:
    return ()


def _no_news(conn: Connection, node: str) -> list[str]:
    return []


def _forget(*_: Any) -> None:
    """As if the answer had not been kept."""


class Mutant(NamedTuple):
    """A way to break the engine."""

    broken: Callable[[], AbstractContextManager[Any]]
    # A first seed from which it does not take long; without it every mutant is found too, later.
    start: int = 0


MUTANTS: dict[str, Mutant] = {
    "no epoch guard": Mutant(_epochless),
    "no signals guard": Mutant(lambda: _unguarded("last_signal_no")),
    "no checkpoint number guard": Mutant(lambda: _unguarded("checkpoint_no")),
    "an outcome is taken twice": Mutant(_twice_done),
    "publish before commit": Mutant(_hasty),
    "void events are not announced": Mutant(lambda: mock.patch.object(journal, "_void", _silence)),
    "numbers that were shown are used again": Mutant(_reused_numbers),
    "every tool is retried after a crash": Mutant(lambda: mock.patch.object(Config, "crash_policy", _always_retry)),
    "cancel stops nothing": Mutant(_deaf),
    "a lost wake is lost for ever": Mutant(
        lambda: mock.patch.object(supervisor, "runs_with_news", _no_news), start=520
    ),
    "a claim whose answer was lost is kept": Mutant(_adrift),
    "a repeated request is a new one": Mutant(lambda: mock.patch.object(create, "remember", _forget)),
    "what joined is lost at the stop": Mutant(_steer_lost),
    "a cancel undoes an answer": Mutant(
        lambda: mock.patch.object(machine, "_take_in", machine._go_on_with_tools), start=300
    ),
    "what may have run is recorded as denied": Mutant(lambda: mock.patch.object(machine, "_denied", _denied)),
    "a call is cut from its return": Mutant(lambda: mock.patch.object(compaction, "_cuts", _anywhere)),
    "the floor moves without its summary": Mutant(_half_moved),
    "a short outage fails the run": Mutant(lambda: mock.patch.object(journal.Journal, "read", _impatient)),
}
