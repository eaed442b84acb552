"""Where a conversation stands: everything that its next model call depends on, as of one moment."""

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection, bindparam, func, select

from common.db.tables import messages, runs
from services.agents import store as agents_store
from services.agents.model import Agent
from services.blocks import store as blocks_store
from services.blocks.model import Block
from services.conversations import store as conversations_store
from services.messages.model import InContext
from services.messages.store import context
from services.runs.model import Run, RunState
from services.runs.protocol import State
from services.runs.store import rows
from services.tools.api import ToolDefinition
from services.tools.catalog import ToolCatalog

_OPEN = (
    select(runs.c.id, runs.c.state, runs.c.cancel_requested_at)
    .where(
        runs.c.conversation_id == bindparam("conversation_id"),
        runs.c.state.in_([RunState.QUEUED, RunState.RUNNING, RunState.AWAITING_APPROVAL]),
    )
    .order_by(runs.c.no)
)
_RUN = select(runs).where(runs.c.id == bindparam("run_id"))
_COUNT = select(func.count()).where(messages.c.conversation_id == bindparam("conversation_id"))


class Live(Struct, frozen=True):
    """The run that works on the conversation or waits for a person, as of its last checkpoint."""

    run: Run
    state: State


class Situation(Struct, frozen=True):
    """What is known of a conversation before its next model call."""

    # As it is in this conversation.
    agent: Agent
    tools: tuple[ToolDefinition, ...]
    blocks: tuple[Block, ...]
    log: tuple[InContext, ...]
    total: int
    live: Live | None = None
    # The first run, live or queued, that nobody has told to stop.
    busy_with: str = ""


def situation(conn: Connection, organization_id: str, conversation_id: str, catalog: ToolCatalog) -> Situation:
    """How a conversation stands; NotFound if it is not there."""
    conversation = conversations_store.get(conn, organization_id, conversation_id)
    agent = agents_store.get(conn, organization_id, conversation.agent_id)
    spec = conversation.spec.over(agent.spec)
    found = conn.execute(_OPEN, {"conversation_id": conversation_id}).all()
    active = next((row.id for row in found if row.state != RunState.QUEUED), "")
    return Situation(
        agent=replace(agent, spec=spec),
        tools=tuple(catalog.load(conn, organization_id, spec.tool_ids)),
        blocks=tuple(blocks_store.of_agent(conn, agent.id)),
        log=tuple(context(conn, conversation_id)),
        total=conn.execute(_COUNT, {"conversation_id": conversation_id}).scalar_one(),
        live=_live(conn, active) if active else None,
        busy_with=next((row.id for row in found if row.cancel_requested_at is None), ""),
    )


def _live(conn: Connection, run_id: str) -> Live:
    row = conn.execute(_RUN, {"run_id": run_id}).one()
    state = rows.SNAPSHOT.decode(row.snapshot) if row.snapshot else State(run_id, row.owner_epoch)
    return Live(rows.run(row), state)
