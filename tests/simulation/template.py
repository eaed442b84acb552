"""The database every schedule starts from: the tables, three agents, four conversations."""

from datetime import UTC, datetime
from functools import cache

from msgspec import Struct
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from common.db.tables import conversations, metadata
from common.ids import DEFAULT_ORGANIZATION
from services.agents import store
from services.agents.model import (
    Agent,
    AgentSpec,
    CompactionSettings,
    MaxCount,
    ModelSettings,
    RequiredBeforeExit,
    RequiresApproval,
    Terminal,
    ToolRule,
)
from tests.simulation.tools import GUARDED, TOOLS

_BORN = datetime(2025, 12, 31, tzinfo=UTC)


class Place(Struct, frozen=True):
    """Where messages can be sent."""

    agent_id: str
    conversation_id: str


def _agent_id(number: int) -> str:
    return f"agent-51000000-0000-4000-8000-{number:012}"


def _conversation_id(number: int) -> str:
    return f"conv-51000000-0000-4000-8000-{number:012}"


# The first agent has two conversations.
PLACES = (
    Place(_agent_id(1), _conversation_id(1)),
    Place(_agent_id(1), _conversation_id(4)),
    Place(_agent_id(2), _conversation_id(2)),
    Place(_agent_id(3), _conversation_id(3)),
)

# How a model is told that it is to summarise; short, because the windows are.
SUMMARISE = "SUMMARISE"
# So small that a few turns fill them; None: only the provider knows.
_WINDOWS = {1: 500, 2: None, 3: 600}
_MODES = {1: "sliding_window", 2: "sliding_window", 3: "all"}

_APPROVAL: tuple[ToolRule, ...] = tuple(RequiresApproval(name) for name in GUARDED)
_RULES: tuple[ToolRule, ...] = (*_APPROVAL, Terminal("again"), RequiredBeforeExit("once_parallel"), MaxCount("once", 2))


@cache
def image() -> bytes:
    """The bytes of it, made once per process."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    metadata.create_all(engine)
    with engine.begin() as conn:
        _add_agent(conn, 1, _APPROVAL, parallel=True)
        _add_agent(conn, 2, _APPROVAL, parallel=False)
        _add_agent(conn, 3, _RULES, parallel=True)
        _add_conversation(conn, PLACES[1])
    with engine.connect() as conn:
        driver = conn.connection.driver_connection
        assert driver is not None
        data: bytes = driver.serialize()
    engine.dispose()
    return data


def _add_agent(conn: Connection, number: int, rules: tuple[ToolRule, ...], *, parallel: bool) -> None:
    spec = AgentSpec(
        tool_ids=tuple(tool.id for tool in TOOLS),
        tool_rules=rules,
        model_settings=ModelSettings(parallel_tool_calls=parallel, context_window=_WINDOWS[number]),
        compaction=CompactionSettings(mode=_MODES[number], prompt=SUMMARISE),
    )
    store.insert(
        conn,
        Agent(
            id=_agent_id(number),
            organization_id=DEFAULT_ORGANIZATION,
            name=f"agent {number}",
            spec=spec,
            tags=(),
            default_conversation_id=_conversation_id(number),
            version=1,
            created_at=_BORN,
            updated_at=_BORN,
        ),
    )


def _add_conversation(conn: Connection, place: Place) -> None:
    conn.execute(
        conversations.insert().values(
            id=place.conversation_id,
            organization_id=DEFAULT_ORGANIZATION,
            agent_id=place.agent_id,
            spec="{}",
            context_floor=0,
            next_message_seq=1,
            next_run_no=1,
            version=1,
            created_at=_BORN,
            updated_at=_BORN,
        )
    )
