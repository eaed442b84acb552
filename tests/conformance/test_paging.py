"""Walking a list page by page meets every row once, in order, also while it changes."""

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, select

from common.db.engine import Database
from common.db.paging import Page, fetch_page, list_scope
from common.db.tables import nodes

NOW = datetime(2026, 11, 1, 12, 0, 0, 123456, tzinfo=UTC)
COLUMNS = (nodes.c.started_at, nodes.c.id)
SCOPE = list_scope("ListNodes", "org-1")


def insert(conn: Connection, *numbers: int) -> None:
    # Three rows share each microsecond, so that the id has to decide.
    conn.execute(
        nodes.insert(),
        [
            {
                "id": f"node-{n:03d}",
                "address": "",
                "started_at": NOW + timedelta(microseconds=n // 3),
                "heartbeat_at": NOW,
            }
            for n in numbers
        ],
    )


def page(conn: Connection, token: str, size: int, descending: bool) -> Page:
    return fetch_page(conn, select(nodes), COLUMNS, scope=SCOPE, size=size, token=token, descending=descending)


async def walk(db: Database, size: int, descending: bool = False) -> list[list[str]]:
    pages, token = [], ""
    while True:
        found = await db.read(page, token, size, descending)
        pages.append([row.id for row in found.rows])
        token = found.next_page_token
        if not token:
            return pages


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("size", [1, 4, 10, 19, 20, 21])
async def test_every_row_once_in_order(db: Database, size: int, descending: bool) -> None:
    await db.write(insert, *range(20))
    pages = await walk(db, size, descending)
    ids = [f"node-{n:03d}" for n in range(20)]
    assert [each for rows in pages for each in rows] == (ids[::-1] if descending else ids)
    assert [len(rows) for rows in pages[:-1]] == [size] * (len(pages) - 1)
    assert 0 < len(pages[-1]) <= size


async def test_an_empty_list_is_one_empty_page(db: Database) -> None:
    assert await walk(db, 5) == [[]]


async def test_rows_that_come_and_go_do_not_shift_the_others(db: Database) -> None:
    await db.write(insert, *range(10, 20))
    first = await db.read(page, "", 4, False)
    await db.write(insert, *range(10))
    await db.write(lambda conn: conn.execute(nodes.delete().where(nodes.c.id == "node-013")) and None)
    second = await db.read(page, first.next_page_token, 4, False)
    assert [row.id for row in second.rows] == ["node-014", "node-015", "node-016", "node-017"]
