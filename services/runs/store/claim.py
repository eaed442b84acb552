"""Ownership: to own a run is to have raised its epoch while nobody else did."""

from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import (
    Connection,
    Row,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    text,
    union_all,
    update,
)

from common.db.prepared import prepared
from common.db.tables import nodes, runs
from services.agents import store as agents_store
from services.agents.model import Agent, AgentSpec
from services.conversations import store as conversations_store
from services.runs.model import CancelSignal, NumberedSignal, Run, RunState
from services.runs.protocol import State
from services.runs.store import rows
from services.runs.store.signals import read_signals, request_cancel
from services.runs.store.states import is_open
from services.tools.api import ToolDefinition
from services.tools.catalog import ToolCatalog

_older = runs.alias("older")
# Runs of one conversation are served in order: nothing before this one may be open.
_first_in_line = ~exists().where(
    _older.c.conversation_id == runs.c.conversation_id,
    _older.c.no < runs.c.no,
    is_open(_older.c.state),
)
_has_news = runs.c.last_signal_no > runs.c.consumed_signal_no
# What an actor could work on now: a queued run whose turn it is, one that lost its owner, one that was answered.
# The states are literals: a planner cannot see that a parameter fits a partial index.
_queued = and_(runs.c.state == text("'queued'"), runs.c.owner_node.is_(None), _first_in_line)
_orphaned = and_(runs.c.state == text("'running'"), runs.c.owner_node.is_(None))
_answered = and_(runs.c.state == RunState.AWAITING_APPROVAL, runs.c.owner_node.is_(None), _has_news)
# The only thing that can be said to a queued run is to stop: then it never starts.
_starts = and_(runs.c.state == RunState.QUEUED, ~_has_news)
_CLAIM = (
    update(runs)
    .values(
        owner_node=bindparam("node"),
        owner_epoch=runs.c.owner_epoch + 1,
        checkpoint_no=0,
        state=case((_starts, RunState.RUNNING), else_=runs.c.state),
        started_at=case((_starts, bindparam("now", type_=runs.c.started_at.type)), else_=runs.c.started_at),
        updated_at=bindparam("now", type_=runs.c.started_at.type),
    )
    .returning(runs)
)
_CLAIM_RUNNABLE = prepared(_CLAIM.where(runs.c.id == bindparam("run_id"), or_(_queued, _orphaned, _answered)))
# A run that was told something may be taken up even if it is not its turn: a queued one can be cancelled at once.
_CLAIM_SIGNALLED = prepared(_CLAIM.where(runs.c.id == bindparam("run_id"), runs.c.owner_node.is_(None), _has_news))
# One query for each kind, because each has an index of its own and an OR of them would have none.
_open = union_all(
    *(select(runs.c.id, runs.c.agent_id, runs.c.created_at).where(kind) for kind in (_queued, _orphaned, _answered))
).subquery()
_turn = func.row_number().over(partition_by=_open.c.agent_id, order_by=(_open.c.created_at, _open.c.id)).label("turn")
_turns = select(_open.c.id, _open.c.created_at, _turn).subquery()
# Every agent's first, then every agent's second: a flood from one agent delays only that agent.
_FAIR = prepared(select(_turns.c.id).order_by(_turns.c.turn, _turns.c.created_at, _turns.c.id).limit(bindparam("most")))
_NEXT_IN_LINE = prepared(
    select(runs.c.id)
    .where(runs.c.conversation_id == bindparam("conversation_id"), runs.c.state == text("'queued'"))
    .order_by(runs.c.no)
    .limit(1)
)
_RELEASE = prepared(
    update(runs)
    .where(runs.c.id == bindparam("run_id"), runs.c.owner_epoch == bindparam("epoch"))
    .values(owner_node=None)
)
_LET_GO = prepared(
    update(runs)
    .where(runs.c.id == bindparam("run_id"), runs.c.owner_node == bindparam("node"))
    .values(owner_node=None, owner_epoch=runs.c.owner_epoch + 1)
)
_ORPHANS = prepared(
    update(runs)
    .where(
        runs.c.owner_node.is_not(None),
        is_open(runs.c.state),
        ~exists().where(nodes.c.id == runs.c.owner_node, nodes.c.heartbeat_at >= bindparam("alive_since")),
    )
    # Raising the epoch here already fences a zombie, before anybody has taken the run up.
    .values(owner_node=None, owner_epoch=runs.c.owner_epoch + 1)
    .returning(runs.c.id)
)
_BEAT = prepared(
    update(nodes)
    .where(nodes.c.id == bindparam("node"))
    .values(address=bindparam("at"), heartbeat_at=bindparam("now", type_=nodes.c.heartbeat_at.type))
)
_FORGET_NODES = prepared(delete(nodes).where(nodes.c.heartbeat_at < bindparam("before")))


class Claim(Struct, frozen=True):
    """A run with everything its new owner needs."""

    run: Run
    epoch: int
    state: State
    resumed: bool
    consumed_signal_no: int
    signals: tuple[NumberedSignal, ...]
    agent: Agent
    tools: tuple[ToolDefinition, ...]
    checkpoint_seq: int
    reserved_seq: int


def claim(
    conn: Connection, run_id: str, node: str, now: datetime, catalog: ToolCatalog, *, signalled: bool = False
) -> Claim | None:
    """Become the run's owner; None if somebody else is, or there is nothing to do."""
    statement = _CLAIM_SIGNALLED if signalled else _CLAIM_RUNNABLE
    row = conn.execute(statement, {"run_id": run_id, "node": node, "now": now}).one_or_none()
    return None if row is None else _claimed(conn, row, catalog)


def cancel_and_claim(
    conn: Connection,
    organization_id: str,
    run_id: str,
    signal: CancelSignal,
    node: str,
    now: datetime,
    catalog: ToolCatalog,
) -> tuple[Run, Claim | None]:
    """Make a cancel durable and, if nobody owns the run, become its owner in the same transaction."""
    run, _ = request_cancel(conn, organization_id, run_id, signal, now)
    return run, None if run.state.final else claim(conn, run_id, node, now, catalog, signalled=True)


def _claimed(conn: Connection, row: Row[Any], catalog: ToolCatalog) -> Claim:
    signals = _news(conn, row)
    # What is about to be stopped needs to know nothing of its agent: a cancel is the last thing that a run is told.
    stops = bool(signals) and isinstance(signals[0].signal, CancelSignal)
    agent, tools = (_nobody(row), ()) if stops else _agent(conn, row, catalog)
    snapshot = rows.SNAPSHOT.decode(row.snapshot) if row.snapshot else State(row.id, row.owner_epoch)
    return Claim(
        run=rows.run(row),
        epoch=row.owner_epoch,
        state=snapshot,
        resumed=row.snapshot is not None,
        consumed_signal_no=row.consumed_signal_no,
        signals=signals,
        agent=agent,
        tools=tools,
        checkpoint_seq=row.checkpoint_seq,
        reserved_seq=row.reserved_seq,
    )


def _agent(conn: Connection, row: Row[Any], catalog: ToolCatalog) -> tuple[Agent, tuple[ToolDefinition, ...]]:
    agent = agents_store.get(conn, row.organization_id, row.agent_id)
    # The conversation's own model and settings come before the agent's.
    spec = conversations_store.spec_of(conn, row.conversation_id).over(agent.spec)
    return replace(agent, spec=spec), tuple(catalog.load(conn, row.organization_id, spec.tool_ids))


def _nobody(row: Row[Any]) -> Agent:
    return Agent(
        id=row.agent_id,
        organization_id=row.organization_id,
        name="",
        spec=AgentSpec(),
        tags=(),
        default_conversation_id="",
        version=0,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _news(conn: Connection, row: Row[Any]) -> tuple[NumberedSignal, ...]:
    if row.last_signal_no == row.consumed_signal_no:
        return ()
    return tuple(read_signals(conn, row.id, row.consumed_signal_no))


def runnable(conn: Connection, most: int) -> list[str]:
    """Runs that could be worked on now, fairly between agents."""
    return list(conn.execute(_FAIR, {"most": most}).scalars())


def next_in_line(conn: Connection, conversation_id: str) -> str | None:
    """The conversation's first run that has not started."""
    found: str | None = conn.execute(_NEXT_IN_LINE, {"conversation_id": conversation_id}).scalar()
    return found


def release(conn: Connection, run_id: str, epoch: int) -> None:
    """Give a run up between two checkpoints; whoever is free takes it."""
    conn.execute(_RELEASE, {"run_id": run_id, "epoch": epoch})


def let_go(conn: Connection, run_id: str, node: str) -> None:
    """Give up a run that this node may own without working on it; by its name, because the epoch is not known."""
    conn.execute(_LET_GO, {"run_id": run_id, "node": node})


def release_orphans(conn: Connection, alive_since: datetime) -> list[str]:
    """Take runs from nodes that stopped living. They are queued again, never executed by whoever finds them."""
    conn.execute(_FORGET_NODES, {"before": alive_since - timedelta(minutes=10)})
    return list(conn.execute(_ORPHANS, {"alive_since": alive_since}).scalars())


def beat(conn: Connection, node: str, address: str, now: datetime) -> None:
    """Say that this node lives."""
    if conn.execute(_BEAT, {"node": node, "at": address, "now": now}).rowcount == 0:
        conn.execute(insert(nodes).values(id=node, address=address, started_at=now, heartbeat_at=now))


def leave(conn: Connection, node: str) -> None:
    """Say that this node is gone, so that nobody waits for its heartbeat to expire."""
    conn.execute(delete(nodes).where(nodes.c.id == node))


def forget_other_nodes(conn: Connection, node: str) -> None:
    """On an embedded database this process holds the only lock: whoever owned runs before it is dead."""
    conn.execute(delete(nodes).where(nodes.c.id != node))
