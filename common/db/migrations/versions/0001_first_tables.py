"""The first tables."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from common.db import types

revision: str = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "agents",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=255), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("hidden", sa.Boolean(), nullable=False),
        sa.Column("search_text", sa.Text(), nullable=False),
        sa.Column("default_conversation_id", sa.String(length=64), nullable=False),
        sa.Column("last_stop_reason", sa.String(length=64), nullable=True),
        sa.Column("last_run_completed_at", types.UtcTime(), nullable=True),
        sa.Column("last_run_duration_us", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.Column("updated_at", types.UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_agents")),
    )
    op.create_index("ix_agents_name", "agents", ["organization_id", "name"], unique=False)
    op.create_index("ix_agents_page", "agents", ["organization_id", "created_at", "id"], unique=False)
    op.create_table(
        "blocks",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(length=128), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.Column("updated_at", types.UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_blocks")),
    )
    op.create_index("ix_blocks_page", "blocks", ["organization_id", "created_at", "id"], unique=False)
    op.create_table(
        "idempotency",
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("method", sa.String(length=64), nullable=False),
        sa.Column("request_id", sa.String(length=128), nullable=False),
        sa.Column("fingerprint", sa.String(length=64), nullable=False),
        sa.Column("resource_id", sa.String(length=64), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "method", "request_id", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_created_at"), "idempotency", ["created_at"], unique=False)
    op.create_table(
        "nodes",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("address", sa.String(length=255), nullable=False),
        sa.Column("started_at", types.UtcTime(), nullable=False),
        sa.Column("heartbeat_at", types.UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nodes")),
    )
    op.create_index(op.f("ix_nodes_heartbeat_at"), "nodes", ["heartbeat_at"], unique=False)
    op.create_table(
        "outbox",
        sa.Column("no", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("topic", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=64), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", types.UtcTime(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("no", name=op.f("pk_outbox")),
    )
    op.create_index(op.f("ix_outbox_due_at"), "outbox", ["due_at"], unique=False)
    op.create_table(
        "tools",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.Column("updated_at", types.UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tools")),
        sa.UniqueConstraint("organization_id", "name", name=op.f("uq_tools_organization_id_name")),
    )
    op.create_table(
        "agent_blocks",
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("block_id", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_blocks_agent_id_agents"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["block_id"], ["blocks.id"], name=op.f("fk_agent_blocks_block_id_blocks"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "block_id", name=op.f("pk_agent_blocks")),
    )
    op.create_index(op.f("ix_agent_blocks_block_id"), "agent_blocks", ["block_id"], unique=False)
    op.create_table(
        "agent_tags",
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("tag", sa.String(length=128), nullable=False),
        sa.Column("folded", sa.Text(), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_tags_agent_id_agents"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "tag", name=op.f("pk_agent_tags")),
    )
    op.create_index("ix_agent_tags_lookup", "agent_tags", ["organization_id", "tag"], unique=False)
    op.create_table(
        "conversations",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("context_floor", sa.BigInteger(), nullable=False),
        sa.Column("next_message_seq", sa.BigInteger(), nullable=False),
        sa.Column("next_run_no", sa.BigInteger(), nullable=False),
        sa.Column("last_message_at", types.UtcTime(), nullable=True),
        sa.Column("deleted_at", types.UtcTime(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.Column("updated_at", types.UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_conversations_agent_id_agents"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_conversations")),
    )
    op.create_index("ix_conversations_agent", "conversations", ["agent_id", "created_at", "id"], unique=False)
    op.create_index("ix_conversations_page", "conversations", ["organization_id", "created_at", "id"], unique=False)
    op.create_table(
        "runs",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("no", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("stop_reason", sa.String(length=64), nullable=True),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.Text(), nullable=True),
        sa.Column("owner_node", sa.String(length=64), nullable=True),
        sa.Column("owner_epoch", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_no", sa.BigInteger(), nullable=False),
        sa.Column("last_signal_no", sa.BigInteger(), nullable=False),
        sa.Column("consumed_signal_no", sa.BigInteger(), nullable=False),
        sa.Column("checkpoint_seq", sa.BigInteger(), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("reserved_seq", sa.BigInteger(), nullable=False),
        sa.Column("background", sa.Boolean(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("cancel_requested_at", types.UtcTime(), nullable=True),
        sa.Column("started_at", types.UtcTime(), nullable=True),
        sa.Column("stopped_at", types.UtcTime(), nullable=True),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.Column("updated_at", types.UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_runs_agent_id_agents"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_runs_conversation_id_conversations"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_runs")),
        sa.UniqueConstraint("conversation_id", "no", name=op.f("uq_runs_conversation_id_no")),
    )
    op.create_index("ix_runs_agent", "runs", ["agent_id", "created_at", "id"], unique=False)
    op.create_index(
        "ix_runs_news",
        "runs",
        ["agent_id", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("last_signal_no > consumed_signal_no"),
        postgresql_where=sa.text("last_signal_no > consumed_signal_no"),
    )
    op.create_index(
        "ix_runs_orphaned",
        "runs",
        ["agent_id", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'running' AND owner_node IS NULL"),
        postgresql_where=sa.text("state = 'running' AND owner_node IS NULL"),
    )
    op.create_index(
        "ix_runs_owned",
        "runs",
        ["owner_node"],
        unique=False,
        sqlite_where=sa.text("owner_node IS NOT NULL"),
        postgresql_where=sa.text("owner_node IS NOT NULL"),
    )
    op.create_index("ix_runs_page", "runs", ["organization_id", "created_at", "id"], unique=False)
    op.create_index(
        "ix_runs_queued",
        "runs",
        ["agent_id", "created_at", "id"],
        unique=False,
        sqlite_where=sa.text("state = 'queued'"),
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.create_index(
        "uq_runs_active_conversation",
        "runs",
        ["conversation_id"],
        unique=True,
        sqlite_where=sa.text("state IN ('running', 'awaiting_approval')"),
        postgresql_where=sa.text("state IN ('running', 'awaiting_approval')"),
    )
    op.create_table(
        "approvals",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("step_id", sa.String(length=64), nullable=False),
        sa.Column("state", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("decided_by", sa.String(length=255), nullable=True),
        sa.Column("decided_at", types.UtcTime(), nullable=True),
        sa.Column("expires_at", types.UtcTime(), nullable=True),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_approvals_agent_id_agents"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_approvals_conversation_id_conversations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_approvals_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_approvals")),
    )
    op.create_index(op.f("ix_approvals_agent_id"), "approvals", ["agent_id"], unique=False)
    op.create_index(op.f("ix_approvals_decided_at"), "approvals", ["decided_at"], unique=False)
    op.create_index(
        "ix_approvals_expiry",
        "approvals",
        ["expires_at"],
        unique=False,
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.create_index("ix_approvals_page", "approvals", ["organization_id", "state", "created_at", "id"], unique=False)
    op.create_index(op.f("ix_approvals_run_id"), "approvals", ["run_id"], unique=False)
    op.create_table(
        "messages",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("conversation_id", sa.String(length=64), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=True),
        sa.Column("step_id", sa.String(length=64), nullable=True),
        sa.Column("role", sa.String(length=32), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_messages_agent_id_agents"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name=op.f("fk_messages_conversation_id_conversations"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_messages_run_id_runs"), ondelete="SET NULL"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_messages")),
        sa.UniqueConstraint("conversation_id", "seq", name=op.f("uq_messages_conversation_id_seq")),
    )
    op.create_index("ix_messages_agent", "messages", ["agent_id"], unique=False)
    op.create_index("ix_messages_page", "messages", ["organization_id", "created_at", "id"], unique=False)
    op.create_index(op.f("ix_messages_run_id"), "messages", ["run_id"], unique=False)
    op.create_table(
        "run_events",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("last_seq", sa.BigInteger(), nullable=False),
        sa.Column("first_seq", sa.BigInteger(), nullable=False),
        sa.Column("payload", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_run_events_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "last_seq", name=op.f("pk_run_events")),
    )
    op.create_index(op.f("ix_run_events_created_at"), "run_events", ["created_at"], unique=False)
    op.create_table(
        "signals",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("no", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_signals_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("run_id", "no", name=op.f("pk_signals")),
    )
    op.create_table(
        "steps",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("no", sa.Integer(), nullable=False),
        sa.Column("status", sa.String(length=32), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.Column("updated_at", types.UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.id"], name=op.f("fk_steps_agent_id_agents"), ondelete="CASCADE"),
        sa.ForeignKeyConstraint(["run_id"], ["runs.id"], name=op.f("fk_steps_run_id_runs"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_steps")),
        sa.UniqueConstraint("run_id", "no", name=op.f("uq_steps_run_id_no")),
    )
    op.create_index(op.f("ix_steps_agent_id"), "steps", ["agent_id"], unique=False)
    op.create_index("ix_steps_page", "steps", ["organization_id", "created_at", "id"], unique=False)


def downgrade() -> None:
    """Go back to the one before."""
    op.drop_index("ix_steps_page", table_name="steps")
    op.drop_index(op.f("ix_steps_agent_id"), table_name="steps")
    op.drop_table("steps")
    op.drop_table("signals")
    op.drop_index(op.f("ix_run_events_created_at"), table_name="run_events")
    op.drop_table("run_events")
    op.drop_index(op.f("ix_messages_run_id"), table_name="messages")
    op.drop_index("ix_messages_page", table_name="messages")
    op.drop_index("ix_messages_agent", table_name="messages")
    op.drop_table("messages")
    op.drop_index(op.f("ix_approvals_run_id"), table_name="approvals")
    op.drop_index("ix_approvals_page", table_name="approvals")
    op.drop_index(
        "ix_approvals_expiry",
        table_name="approvals",
        sqlite_where=sa.text("state = 'pending'"),
        postgresql_where=sa.text("state = 'pending'"),
    )
    op.drop_index(op.f("ix_approvals_decided_at"), table_name="approvals")
    op.drop_index(op.f("ix_approvals_agent_id"), table_name="approvals")
    op.drop_table("approvals")
    op.drop_index(
        "uq_runs_active_conversation",
        table_name="runs",
        sqlite_where=sa.text("state IN ('running', 'awaiting_approval')"),
        postgresql_where=sa.text("state IN ('running', 'awaiting_approval')"),
    )
    op.drop_index(
        "ix_runs_queued",
        table_name="runs",
        sqlite_where=sa.text("state = 'queued'"),
        postgresql_where=sa.text("state = 'queued'"),
    )
    op.drop_index("ix_runs_page", table_name="runs")
    op.drop_index(
        "ix_runs_owned",
        table_name="runs",
        sqlite_where=sa.text("owner_node IS NOT NULL"),
        postgresql_where=sa.text("owner_node IS NOT NULL"),
    )
    op.drop_index(
        "ix_runs_orphaned",
        table_name="runs",
        sqlite_where=sa.text("state = 'running' AND owner_node IS NULL"),
        postgresql_where=sa.text("state = 'running' AND owner_node IS NULL"),
    )
    op.drop_index(
        "ix_runs_news",
        table_name="runs",
        sqlite_where=sa.text("last_signal_no > consumed_signal_no"),
        postgresql_where=sa.text("last_signal_no > consumed_signal_no"),
    )
    op.drop_index("ix_runs_agent", table_name="runs")
    op.drop_table("runs")
    op.drop_index("ix_conversations_page", table_name="conversations")
    op.drop_index("ix_conversations_agent", table_name="conversations")
    op.drop_table("conversations")
    op.drop_index("ix_agent_tags_lookup", table_name="agent_tags")
    op.drop_table("agent_tags")
    op.drop_index(op.f("ix_agent_blocks_block_id"), table_name="agent_blocks")
    op.drop_table("agent_blocks")
    op.drop_table("tools")
    op.drop_index(op.f("ix_outbox_due_at"), table_name="outbox")
    op.drop_table("outbox")
    op.drop_index(op.f("ix_nodes_heartbeat_at"), table_name="nodes")
    op.drop_table("nodes")
    op.drop_index(op.f("ix_idempotency_created_at"), table_name="idempotency")
    op.drop_table("idempotency")
    op.drop_index("ix_blocks_page", table_name="blocks")
    op.drop_table("blocks")
    op.drop_index("ix_agents_page", table_name="agents")
    op.drop_index("ix_agents_name", table_name="agents")
    op.drop_table("agents")
