"""Memory, models and tools."""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from common.db import types

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Go to this revision."""
    op.create_table(
        "providers",
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("api", sa.String(length=32), nullable=False),
        sa.Column("base_url", sa.Text(), nullable=False),
        sa.Column("sealed_key", sa.LargeBinary(), nullable=True),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.Column("updated_at", types.UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "name", name=op.f("pk_providers")),
    )
    op.create_table(
        "tool_servers",
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("kind", sa.String(length=32), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=True),
        sa.Column("synced_at", types.UtcTime(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.Column("updated_at", types.UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "name", name=op.f("pk_tool_servers")),
    )
    op.create_table(
        "agent_secrets",
        sa.Column("agent_id", sa.String(length=64), nullable=False),
        sa.Column("key", sa.String(length=128), nullable=False),
        sa.Column("sealed", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["agent_id"], ["agents.id"], name=op.f("fk_agent_secrets_agent_id_agents"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("agent_id", "key", name=op.f("pk_agent_secrets")),
    )
    op.create_table(
        "block_tags",
        sa.Column("block_id", sa.String(length=64), nullable=False),
        sa.Column("tag", sa.String(length=128), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(
            ["block_id"], ["blocks.id"], name=op.f("fk_block_tags_block_id_blocks"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("block_id", "tag", name=op.f("pk_block_tags")),
    )
    with op.batch_alter_table("block_tags", schema=None) as batch_op:
        batch_op.create_index("ix_block_tags_lookup", ["organization_id", "tag"], unique=False)

    op.create_table(
        "step_traces",
        sa.Column("step_id", sa.String(length=64), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("response", sa.Text(), nullable=False),
        sa.Column("created_at", types.UtcTime(), nullable=False),
        sa.ForeignKeyConstraint(
            ["step_id"], ["steps.id"], name=op.f("fk_step_traces_step_id_steps"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("step_id", name=op.f("pk_step_traces")),
    )
    with op.batch_alter_table("step_traces", schema=None) as batch_op:
        batch_op.create_index(batch_op.f("ix_step_traces_created_at"), ["created_at"], unique=False)

    op.create_table(
        "tool_tags",
        sa.Column("tool_id", sa.String(length=64), nullable=False),
        sa.Column("tag", sa.String(length=128), nullable=False),
        sa.Column("organization_id", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["tool_id"], ["tools.id"], name=op.f("fk_tool_tags_tool_id_tools"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("tool_id", "tag", name=op.f("pk_tool_tags")),
    )
    with op.batch_alter_table("tool_tags", schema=None) as batch_op:
        batch_op.create_index("ix_tool_tags_lookup", ["organization_id", "tag"], unique=False)

    with op.batch_alter_table("tools", schema=None) as batch_op:
        batch_op.add_column(sa.Column("search_text", sa.Text(), server_default="", nullable=False))
        batch_op.create_index("ix_tools_page", ["organization_id", "created_at", "id"], unique=False)

    with op.batch_alter_table("conversations", schema=None) as batch_op:
        batch_op.add_column(sa.Column("summary_message_id", sa.String(length=64), nullable=True))

    with op.batch_alter_table("messages", schema=None) as batch_op:
        batch_op.add_column(sa.Column("search_text", sa.Text(), server_default="", nullable=False))

    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.add_column(sa.Column("callback", sa.Text(), nullable=True))


def downgrade() -> None:
    """Go back to the one before."""
    with op.batch_alter_table("runs", schema=None) as batch_op:
        batch_op.drop_column("callback")

    with op.batch_alter_table("messages", schema=None) as batch_op:
        batch_op.drop_column("search_text")

    with op.batch_alter_table("conversations", schema=None) as batch_op:
        batch_op.drop_column("summary_message_id")

    with op.batch_alter_table("tools", schema=None) as batch_op:
        batch_op.drop_index("ix_tools_page")
        batch_op.drop_column("search_text")

    with op.batch_alter_table("tool_tags", schema=None) as batch_op:
        batch_op.drop_index("ix_tool_tags_lookup")

    op.drop_table("tool_tags")
    with op.batch_alter_table("step_traces", schema=None) as batch_op:
        batch_op.drop_index(batch_op.f("ix_step_traces_created_at"))

    op.drop_table("step_traces")
    with op.batch_alter_table("block_tags", schema=None) as batch_op:
        batch_op.drop_index("ix_block_tags_lookup")

    op.drop_table("block_tags")
    op.drop_table("agent_secrets")
    op.drop_table("tool_servers")
    op.drop_table("providers")
