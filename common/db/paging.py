"""Pages by keyset: a page token is the sort key of the last row seen, tied to the list and filter it came from.

Tokens are opaque, not secret: whoever presents one is authorised like any other caller. The check bytes are there so
that a mangled or made-up token is refused rather than read as some other place in the list.
"""

import base64
import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, literal, tuple_

from common.errors import InvalidArgument

SortKey = tuple[str | int | datetime, ...]

DEFAULT_SIZE = 50
MAX_SIZE = 1000

_VERSION = b"\x01"
_CHECK_BYTES = 6
_SCOPE_BYTES = 8
_NOT_OURS = "is not a token of this list"


class _Cursor(msgspec.Struct, frozen=True, array_like=True):
    scope: bytes
    key: tuple[Any, ...]


_decoder = msgspec.msgpack.Decoder(_Cursor)


class Page(msgspec.Struct, frozen=True):
    """Some rows, and the token that continues after them; an empty token means there is nothing more."""

    rows: Sequence[Row[Any]]
    next_page_token: str


def page_size(requested: int, default: int = DEFAULT_SIZE, maximum: int = MAX_SIZE) -> int:
    """The size to use: 0 means the default, too much is cut, negative is an error."""
    if requested < 0:
        raise InvalidArgument.of("page_size", "must not be negative")
    return min(requested or default, maximum)


def list_scope(*parts: object) -> bytes:
    """The fingerprint of a list: its name, the organization, and every argument but the page's."""
    return hashlib.blake2b(msgspec.msgpack.encode(parts), digest_size=_SCOPE_BYTES).digest()


def encode_token(scope: bytes, key: SortKey) -> str:
    """The token that continues the list `scope` after the row with this sort key."""
    body = _VERSION + msgspec.msgpack.encode(_Cursor(scope, key))
    return base64.urlsafe_b64encode(body + _check(body)).decode().rstrip("=")


def decode_token(scope: bytes, token: str) -> SortKey | None:
    """The sort key in a token, None for the empty token of a first page; refuse what this list did not give out."""
    if not token:
        return None
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except ValueError:  # not base64, or not ASCII
        raise InvalidArgument.of("page_token", _NOT_OURS) from None
    body, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    if check != _check(body) or not body.startswith(_VERSION):
        raise InvalidArgument.of("page_token", _NOT_OURS)
    cursor = _decoder.decode(body[len(_VERSION) :])
    if cursor.scope != scope:
        raise InvalidArgument.of("page_token", "belongs to a list with other arguments")
    return cursor.key


def after(columns: Sequence[ColumnElement[Any]], key: SortKey, *, descending: bool = False) -> ColumnElement[bool]:
    """The condition "comes after this key" in an order by `columns`, as one row comparison that an index can serve."""
    values = tuple_(*(literal(value, column.type) for column, value in zip(columns, key, strict=True)))
    return tuple_(*columns) < values if descending else tuple_(*columns) > values


def fetch_page(
    conn: Connection,
    query: Select[Any],
    columns: Sequence[ColumnElement[Any]],
    *,
    scope: bytes,
    size: int,
    token: str,
    descending: bool = False,
) -> Page:
    """One page of `query` in the order of `columns`, which must be selected, not null, and unique together."""
    key = decode_token(scope, token)
    if key is not None:
        query = query.where(after(columns, key, descending=descending))
    order = [column.desc() if descending else column.asc() for column in columns]
    # One row more than asked for tells whether there is a next page.
    rows = conn.execute(query.order_by(*order).limit(size + 1)).all()
    if len(rows) <= size:
        return Page(rows, "")
    last = rows[size - 1]._mapping  # noqa: SLF001 - SQLAlchemy's public API for a row as a mapping
    return Page(rows[:size], encode_token(scope, tuple(last[column] for column in columns)))


def _check(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_CHECK_BYTES, person=b"bridle-page").digest()
