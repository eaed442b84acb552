"""Insert a row, or change the one that is there: one statement, so that twins cannot both find nothing."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(conn: Connection, table: Table, row: Mapping[str, Any], *, keep: frozenset[str] = frozenset()) -> None:
    """Write a row by its primary key; of one that is there the columns in `keep` stay as they are."""
    insert = postgresql.insert if conn.dialect.name == "postgresql" else sqlite.insert
    key = [column.name for column in table.primary_key]
    changed = {name: value for name, value in row.items() if name not in keep and name not in key}
    conn.execute(insert(table).values(**row).on_conflict_do_update(index_elements=key, set_=changed))
