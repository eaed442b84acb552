"""Run by Alembic for every command; `common.db.migrate` has opened the transaction and hands over its connection."""

from typing import Any, Literal

from alembic import context

from common.db.tables import metadata
from common.db.types import UtcTime


def _render(_kind: str, item: Any, _context: object) -> str | Literal[False]:
    """Write our own type as the template imports it, and leave the rest to Alembic."""
    return "types.UtcTime()" if isinstance(item, UtcTime) else False


connection = context.config.attributes["connection"]
context.configure(
    connection=connection,
    target_metadata=metadata,
    # SQLite cannot alter most of a table: batch mode builds a new one and moves the rows.
    render_as_batch=True,
    render_item=_render,
)
context.run_migrations()
