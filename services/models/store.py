"""Providers that organizations have configured."""

from datetime import datetime
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, Row, bindparam, delete, select

from common.db.paging import fetch_page, list_scope
from common.db.tables import providers
from common.db.upsert import upsert
from common.errors import NotFound

_KEPT = frozenset({"created_at"})
_GET = select(providers).where(
    providers.c.organization_id == bindparam("organization_id"), providers.c.name == bindparam("name")
)


class StoredProvider(Struct, frozen=True):
    """A provider of an organization, as it is stored. Its key can only be read with the server's."""

    organization_id: str
    name: str
    api: str
    base_url: str
    sealed_key: bytes | None
    created_at: datetime
    updated_at: datetime

    @property
    def where(self) -> str:
        """The place that its key is sealed for."""
        return place(self.organization_id, self.name)


def place(organization_id: str, name: str) -> str:
    """The place that a provider's key is sealed for."""
    return f"provider/{organization_id}/{name}"


def find(conn: Connection, organization_id: str, name: str) -> StoredProvider | None:
    """One provider, if it is there."""
    row = conn.execute(_GET, {"organization_id": organization_id, "name": name}).one_or_none()
    return None if row is None else _provider(row)


def put(conn: Connection, wanted: StoredProvider) -> StoredProvider:
    """Add a provider or change it; without a key it keeps the one it has. As it is stored now."""
    row = {field: getattr(wanted, field) for field in StoredProvider.__struct_fields__}
    kept = _KEPT if wanted.sealed_key is not None else _KEPT | {"sealed_key"}
    upsert(conn, providers, row, keep=kept)
    stored = find(conn, wanted.organization_id, wanted.name)
    if stored is None:
        raise LookupError("a row that was just written is there")
    return stored


def remove(conn: Connection, organization_id: str, name: str) -> None:
    """Delete a provider, or NotFound."""
    gone = conn.execute(
        delete(providers).where(providers.c.organization_id == organization_id, providers.c.name == name)
    )
    if gone.rowcount == 0:
        raise NotFound("provider", name)


def every(conn: Connection, organization_id: str) -> list[StoredProvider]:
    """All providers of an organization."""
    query = select(providers).where(providers.c.organization_id == organization_id).order_by(providers.c.name)
    return [_provider(row) for row in conn.execute(query)]


def list_page(conn: Connection, organization_id: str, *, size: int, token: str) -> tuple[list[StoredProvider], str]:
    """A page of providers by name, and the token of the next."""
    page = fetch_page(
        conn,
        select(providers).where(providers.c.organization_id == organization_id),
        (providers.c.name,),
        scope=list_scope("ListProviders", organization_id),
        size=size,
        token=token,
    )
    return [_provider(row) for row in page.rows], page.next_page_token


def _provider(row: Row[Any]) -> StoredProvider:
    return StoredProvider(**{name: getattr(row, name) for name in StoredProvider.__struct_fields__})
