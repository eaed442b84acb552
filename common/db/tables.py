"""Every table, once. Stores build their statements from these objects; Alembic migrations bring a database to them.

Structured values that only our own code reads (specs, usage, machine snapshots) are JSON text written by msgspec. What
a query filters or a guard compares is a column of its own.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from common.db.types import UtcTime

# Stable constraint names: a migration must be able to drop what an earlier one made, on either database.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_ID = String(64)
# SQLite only auto-increments a column declared exactly INTEGER.
_BIG_SERIAL = BigInteger().with_variant(Integer, "sqlite")


def _organization() -> Column[str]:
    return Column("organization_id", _ID, nullable=False)


def _times() -> tuple[Column[object], Column[object]]:
    return Column("created_at", UtcTime, nullable=False), Column("updated_at", UtcTime, nullable=False)


def _agent(index: bool = False) -> Column[str]:
    return Column("agent_id", _ID, ForeignKey("agents.id", ondelete="CASCADE"), nullable=False, index=index)


def _conversation() -> Column[str]:
    return Column("conversation_id", _ID, ForeignKey("conversations.id", ondelete="CASCADE"), nullable=False)


def _partial(name: str, *columns: str, where: str, unique: bool = False) -> Index:
    """An index of some rows only; both databases can do that."""
    return Index(name, *columns, unique=unique, sqlite_where=text(where), postgresql_where=text(where))


nodes = Table(
    "nodes",
    metadata,
    Column("id", _ID, primary_key=True),
    Column("address", String(255), nullable=False),
    Column("started_at", UtcTime, nullable=False),
    Column("heartbeat_at", UtcTime, nullable=False, index=True),
)

agents = Table(
    "agents",
    metadata,
    Column("id", _ID, primary_key=True),
    _organization(),
    Column("name", String(255), nullable=False),
    Column("spec", Text, nullable=False),
    # Copies of what is in spec, for the filters of a list; search_text is name and description, case-folded.
    Column("hidden", Boolean, nullable=False),
    Column("search_text", Text, nullable=False),
    Column("default_conversation_id", _ID, nullable=False),
    Column("last_stop_reason", String(64)),
    Column("last_run_completed_at", UtcTime),
    Column("last_run_duration_us", BigInteger),
    # Every change adds one; it is the etag and the guard of optimistic updates.
    Column("version", BigInteger, nullable=False),
    *_times(),
    Index("ix_agents_page", "organization_id", "created_at", "id"),
    Index("ix_agents_name", "organization_id", "name"),
)

agent_tags = Table(
    "agent_tags",
    metadata,
    Column("agent_id", _ID, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", String(128), primary_key=True),
    # The tag without case, for searching: SQLite's own lower() knows only ASCII.
    Column("folded", Text, nullable=False),
    _organization(),
    Index("ix_agent_tags_lookup", "organization_id", "tag"),
)

tools = Table(
    "tools",
    metadata,
    Column("id", _ID, primary_key=True),
    _organization(),
    Column("name", String(64), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("spec", Text, nullable=False),
    # Name and description, case-folded.
    Column("search_text", Text, nullable=False, server_default=""),
    Column("version", BigInteger, nullable=False),
    *_times(),
    UniqueConstraint("organization_id", "name"),
    Index("ix_tools_page", "organization_id", "created_at", "id"),
)

tool_tags = Table(
    "tool_tags",
    metadata,
    Column("tool_id", _ID, ForeignKey("tools.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", String(128), primary_key=True),
    _organization(),
    Index("ix_tool_tags_lookup", "organization_id", "tag"),
)

blocks = Table(
    "blocks",
    metadata,
    Column("id", _ID, primary_key=True),
    _organization(),
    Column("label", String(128), nullable=False),
    Column("value", Text, nullable=False),
    Column("spec", Text, nullable=False),
    Column("version", BigInteger, nullable=False),
    *_times(),
    Index("ix_blocks_page", "organization_id", "created_at", "id"),
)

block_tags = Table(
    "block_tags",
    metadata,
    Column("block_id", _ID, ForeignKey("blocks.id", ondelete="CASCADE"), primary_key=True),
    Column("tag", String(128), primary_key=True),
    _organization(),
    Index("ix_block_tags_lookup", "organization_id", "tag"),
)

agent_blocks = Table(
    "agent_blocks",
    metadata,
    Column("agent_id", _ID, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("block_id", _ID, ForeignKey("blocks.id", ondelete="CASCADE"), primary_key=True, index=True),
    # Blocks are compiled into the prompt in this order, so that provider prefix caches hit.
    Column("position", Integer, nullable=False),
)

# Values are sealed with the server's key (common/seal.py); nothing ever returns them.
agent_secrets = Table(
    "agent_secrets",
    metadata,
    Column("agent_id", _ID, ForeignKey("agents.id", ondelete="CASCADE"), primary_key=True),
    Column("key", String(128), primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
)

# Model providers that an organization brought; those of the server's environment have no row.
providers = Table(
    "providers",
    metadata,
    Column("organization_id", _ID, primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("api", String(32), nullable=False),
    Column("base_url", Text, nullable=False),
    Column("sealed_key", LargeBinary),
    *_times(),
)

# Where gRPC and MCP tools are reached. What is secret in that (headers, environment, keys) is sealed.
tool_servers = Table(
    "tool_servers",
    metadata,
    Column("organization_id", _ID, primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("spec", Text, nullable=False),
    Column("sealed", LargeBinary),
    Column("synced_at", UtcTime),
    Column("version", BigInteger, nullable=False),
    *_times(),
)

conversations = Table(
    "conversations",
    metadata,
    Column("id", _ID, primary_key=True),
    _organization(),
    _agent(),
    Column("spec", Text, nullable=False),
    # What the model is shown starts at this message; only a compaction or a reset moves it.
    Column("context_floor", BigInteger, nullable=False),
    # Stands for everything below the floor, and is shown before the rest; written by the compaction that moved it.
    Column("summary_message_id", _ID),
    Column("next_message_seq", BigInteger, nullable=False),
    # Also the lock that makes "is it busy?" and "add a run" one decision.
    Column("next_run_no", BigInteger, nullable=False),
    Column("last_message_at", UtcTime),
    Column("deleted_at", UtcTime),
    Column("version", BigInteger, nullable=False),
    *_times(),
    Index("ix_conversations_page", "organization_id", "created_at", "id"),
    Index("ix_conversations_agent", "agent_id", "created_at", "id"),
)

runs = Table(
    "runs",
    metadata,
    Column("id", _ID, primary_key=True),
    _organization(),
    _agent(),
    _conversation(),
    # Order of the runs of one conversation; they are served in it.
    Column("no", BigInteger, nullable=False),
    Column("state", String(32), nullable=False),
    Column("stop_reason", String(64)),
    # What the caller asked for. It becomes messages only when the run starts.
    Column("request", Text, nullable=False),
    # The machine's state at the last checkpoint; NULL until the run has started.
    Column("snapshot", Text),
    # To own a run is to have raised its epoch; every write of the owner names it (promise 1).
    Column("owner_node", _ID),
    Column("owner_epoch", BigInteger, nullable=False),
    # Checkpoints of one epoch are numbered, so that one which was done but reported as lost is recognised.
    Column("checkpoint_no", BigInteger, nullable=False),
    # Signals are numbered per run. A run may only end when it has consumed the last one.
    Column("last_signal_no", BigInteger, nullable=False),
    Column("consumed_signal_no", BigInteger, nullable=False),
    # Last event of the last checkpoint, last event that is durable, last number a live reader may have been shown.
    Column("checkpoint_seq", BigInteger, nullable=False),
    Column("last_seq", BigInteger, nullable=False),
    Column("reserved_seq", BigInteger, nullable=False),
    Column("background", Boolean, nullable=False),
    Column("outcome", Text, nullable=False),
    # How the last callback went. Not the owner's to write: a callback is delivered after the run has stopped.
    Column("callback", Text),
    Column("cancel_requested_at", UtcTime),
    Column("started_at", UtcTime),
    Column("stopped_at", UtcTime),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    UniqueConstraint("conversation_id", "no"),
    Index("ix_runs_page", "organization_id", "created_at", "id"),
    Index("ix_runs_agent", "agent_id", "created_at", "id"),
    # What a supervisor looks for every second. Runs that wait for a person are in none of these.
    _partial("ix_runs_queued", "agent_id", "created_at", "id", where="state = 'queued'"),
    _partial("ix_runs_owned", "owner_node", where="owner_node IS NOT NULL"),
    _partial("ix_runs_orphaned", "agent_id", "created_at", "id", where="state = 'running' AND owner_node IS NULL"),
    _partial("ix_runs_news", "agent_id", "created_at", "id", where="last_signal_no > consumed_signal_no"),
    # Serial per conversation is the database's business, not the scheduler's.
    _partial(
        "uq_runs_active_conversation",
        "conversation_id",
        where="state IN ('running', 'awaiting_approval')",
        unique=True,
    ),
)


def _run(index: bool = False) -> Column[str]:
    return Column("run_id", _ID, ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, index=index)


messages = Table(
    "messages",
    metadata,
    Column("id", _ID, primary_key=True),
    _organization(),
    _agent(),
    _conversation(),
    Column("seq", BigInteger, nullable=False),
    # A system message belongs to no run.
    Column("run_id", _ID, ForeignKey("runs.id", ondelete="SET NULL"), index=True),
    Column("step_id", _ID),
    Column("role", String(32), nullable=False),
    Column("body", Text, nullable=False),
    # What was said in it, case-folded, for searching: a search of the body would find its JSON.
    Column("search_text", Text, nullable=False, server_default=""),
    Column("created_at", UtcTime, nullable=False),
    UniqueConstraint("conversation_id", "seq"),
    Index("ix_messages_page", "organization_id", "created_at", "id"),
    Index("ix_messages_agent", "agent_id"),
)

steps = Table(
    "steps",
    metadata,
    Column("id", _ID, primary_key=True),
    _organization(),
    _agent(index=True),
    _run(),
    Column("no", Integer, nullable=False),
    Column("status", String(32), nullable=False),
    Column("detail", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    Column("updated_at", UtcTime, nullable=False),
    UniqueConstraint("run_id", "no"),
    Index("ix_steps_page", "organization_id", "created_at", "id"),
)

# What was sent to the provider and what it answered, if traces are kept: redacted, and cut to a size.
step_traces = Table(
    "step_traces",
    metadata,
    Column("step_id", _ID, ForeignKey("steps.id", ondelete="CASCADE"), primary_key=True),
    _organization(),
    Column("request", Text, nullable=False),
    Column("response", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False, index=True),
)

approvals = Table(
    "approvals",
    metadata,
    Column("id", _ID, primary_key=True),
    _organization(),
    _agent(index=True),
    _conversation(),
    _run(index=True),
    Column("step_id", _ID, nullable=False),
    Column("state", String(32), nullable=False),
    # The calls with the digest of their arguments, and, once decided, the answer to each.
    Column("detail", Text, nullable=False),
    Column("decided_by", String(255)),
    Column("decided_at", UtcTime, index=True),
    Column("expires_at", UtcTime),
    Column("created_at", UtcTime, nullable=False),
    Index("ix_approvals_page", "organization_id", "state", "created_at", "id"),
    _partial("ix_approvals_expiry", "expires_at", where="state = 'pending'"),
)

signals = Table(
    "signals",
    metadata,
    Column("run_id", _ID, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("no", BigInteger, primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("payload", Text, nullable=False),
    Column("created_at", UtcTime, nullable=False),
)

# Events are written in batches: a token is far too small to be a row.
run_events = Table(
    "run_events",
    metadata,
    Column("run_id", _ID, ForeignKey("runs.id", ondelete="CASCADE"), primary_key=True),
    Column("last_seq", BigInteger, primary_key=True),
    Column("first_seq", BigInteger, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    Column("created_at", UtcTime, nullable=False, index=True),
)

# What other systems must hear of, in the transaction that made it true; a relay delivers it later.
outbox = Table(
    "outbox",
    metadata,
    Column("no", _BIG_SERIAL, primary_key=True, autoincrement=True),
    _organization(),
    Column("topic", String(64), nullable=False),
    Column("key", _ID, nullable=False),
    Column("payload", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", UtcTime, nullable=False, index=True),
    Column("created_at", UtcTime, nullable=False),
)

idempotency = Table(
    "idempotency",
    metadata,
    Column("organization_id", _ID, primary_key=True),
    Column("method", String(64), primary_key=True),
    Column("request_id", String(128), primary_key=True),
    Column("fingerprint", String(64), nullable=False),
    Column("resource_id", _ID, nullable=False),
    Column("created_at", UtcTime, nullable=False, index=True),
)
