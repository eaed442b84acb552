"""`request_id`: a repeated call gets the first answer. Both functions belong in the transaction of the effect."""

import hashlib
from datetime import datetime

from sqlalchemy import Connection, bindparam, func, insert, select

from common.db.prepared import prepared
from common.db.tables import idempotency
from common.errors import RequestIdReused

_FIND = prepared(
    select(idempotency.c.fingerprint, idempotency.c.resource_id).where(
        idempotency.c.organization_id == bindparam("organization_id"),
        idempotency.c.method == bindparam("method"),
        idempotency.c.request_id == bindparam("request_id"),
    )
)
_ADD = prepared(insert(idempotency))
_LOCK = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("key"), 0)))


def fingerprint(content: bytes) -> str:
    """What tells one request's content from another's: give it a deterministic encoding without the request id."""
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def replay(conn: Connection, organization_id: str, method: str, request_id: str, fingerprint: str) -> str | None:
    """The resource that the first call with this id made, or None for a first call.

    Twins that arrive together wait here for each other, so that the effect of only one of them is ever tried.
    """
    if not request_id:
        return None
    if conn.dialect.name == "postgresql":  # SQLite has one writer, which is the same lock
        conn.execute(_LOCK, {"key": f"{organization_id}/{method}/{request_id}"})
    found = conn.execute(
        _FIND, {"organization_id": organization_id, "method": method, "request_id": request_id}
    ).one_or_none()
    if found is None:
        return None
    if found.fingerprint != fingerprint:
        raise RequestIdReused(request_id)
    resource_id: str = found.resource_id
    return resource_id


def remember(
    conn: Connection,
    organization_id: str,
    method: str,
    request_id: str,
    fingerprint: str,
    resource_id: str,
    now: datetime,
) -> None:
    """Keep the answer for later repeats; a call without an id is not kept."""
    if not request_id:
        return
    conn.execute(
        _ADD,
        {
            "organization_id": organization_id,
            "method": method,
            "request_id": request_id,
            "fingerprint": fingerprint,
            "resource_id": resource_id,
            "created_at": now,
        },
    )


def forget_before(conn: Connection, moment: datetime) -> int:
    """Drop answers kept before `moment`, and say how many."""
    return conn.execute(idempotency.delete().where(idempotency.c.created_at < moment)).rowcount
