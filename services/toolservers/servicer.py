"""The part of ToolService that is about tool servers; ToolServicer hands its calls on to this."""

import asyncio
from collections.abc import Collection
from datetime import datetime
from typing import Final

import msgspec
from google.protobuf.empty_pb2 import Empty
from msgspec.structs import replace
from sqlalchemy import Connection

from common.clock import Clock
from common.db.engine import Database
from common.db.paging import page_size
from common.errors import InvalidArgument, NotFound, StoreConflict, ToolServerFailed
from common.pb.bridle.v1 import tool_pb2, tool_service_pb2
from common.rpc.context import current_call
from common.seal import Seal
from services.tools.convert import to_pb
from services.tools.model import Tool
from services.toolservers import store, sync, validate
from services.toolservers.api import ServerFailed
from services.toolservers.convert import reach_from_pb, secrets_from_pb, server_to_pb
from services.toolservers.model import Grpc, OfferedTool, Secrets, ToolServer, kind_of, sealed_at
from services.toolservers.pool import Pool
from services.toolservers.validate import Limits
from services.wire.checks import require

# Within the deadline of a call that came without one.
_SYNC_SECONDS: Final = 20.0


class ToolServers:
    """Registers, lists, asks and forgets tool servers."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        seal: Seal,
        pool: Pool,
        limits: Limits,
        reserved: Collection[str],
    ) -> None:
        self._db = db
        self._clock = clock
        self._seal = seal
        self._pool = pool
        self._limits = limits
        self._reserved = reserved

    async def put(self, request: tool_service_pb2.PutToolServerRequest) -> tool_pb2.ToolServer:
        """Register a server, or change it."""
        require(validate.server("server", request.server, self._limits))
        organization_id = current_call().organization_id
        secrets, name = secrets_from_pb(request.server), request.server.name
        sealed = self._seal.seal(_encoded(secrets), sealed_at(organization_id, name)) if secrets else None
        stored = await self._db.write(self._put, organization_id, request.server, sealed)
        return server_to_pb(stored)

    async def page(self, request: tool_service_pb2.ListToolServersRequest) -> tool_service_pb2.ListToolServersResponse:
        """A page of servers."""
        size = page_size(request.page_size)
        servers, token = await self._db.read(
            store.list_page, current_call().organization_id, size=size, token=request.page_token
        )
        return tool_service_pb2.ListToolServersResponse(servers=map(server_to_pb, servers), next_page_token=token)

    async def sync(self, request: tool_service_pb2.SyncToolServerRequest) -> tool_service_pb2.SyncToolServerResponse:
        """Ask a server for its tools, and make ours match."""
        require(validate.server_name("name", request.name))
        server = await self._db.lookup(store.get, current_call().organization_id, request.name)
        try:
            async with self._pool.using(server) as connection:
                offered = await connection.offered(asyncio.get_running_loop().time() + _SYNC_SECONDS)
        except ServerFailed as error:
            raise ToolServerFailed(server.name, error.cause) from None
        found = await self._db.write(self._sync, server, offered)
        return tool_service_pb2.SyncToolServerResponse(tools=map(to_pb, found))

    async def delete(self, request: tool_service_pb2.DeleteToolServerRequest) -> Empty:
        """Forget a server and its tools; its calls end."""
        require(validate.server_name("name", request.name))
        organization_id = current_call().organization_id
        await self._db.write(_delete, organization_id, request.name, self._clock.now())
        await self._pool.drop(organization_id, request.name)
        return Empty()

    def _put(
        self, conn: Connection, organization_id: str, given: tool_pb2.ToolServer, sealed: bytes | None
    ) -> ToolServer:
        now, reach = self._clock.now(), reach_from_pb(given)
        current = store.claim(conn, organization_id, given.name)
        if current is None:
            _require_key(reach, sealed)
            made = ToolServer(organization_id, given.name, reach, sealed, None, 1, now, now)
            store.insert(conn, made)
            return made
        if current.kind != kind_of(reach):
            raise InvalidArgument.of("server.connection", f"cannot change: '{given.name}' is a server of another kind")
        # Secrets for another place must be sent again: else whoever may change a server can have them.
        if sealed is None and current.reach.place == reach.place:
            sealed = current.sealed
        _require_key(reach, sealed)
        changed = replace(current, reach=reach, sealed=sealed, version=current.version + 1, updated_at=now)
        store.update(conn, changed)
        return changed

    def _sync(self, conn: Connection, asked: ToolServer, offered: list[OfferedTool]) -> list[Tool]:
        server = store.lock(conn, asked.organization_id, asked.name)
        if server is None:
            raise NotFound("tool server", asked.name)
        if server.revision != asked.revision:
            raise StoreConflict  # what was asked is not what is registered now
        now = self._clock.now()
        store.synced(conn, server, now)
        return sync.sync(conn, server, offered, self._reserved, now)


def _delete(conn: Connection, organization_id: str, name: str, now: datetime) -> None:
    server = store.lock(conn, organization_id, name)
    if server is None:
        raise NotFound("tool server", name)
    sync.delete(conn, server, now)
    store.delete(conn, server)


def _require_key(reach: object, sealed: bytes | None) -> None:
    if isinstance(reach, Grpc) and reach.certificate_pem and sealed is None:
        raise InvalidArgument.of("server.grpc.key_pem", "is required with certificate_pem")


def _encoded(secrets: Secrets) -> str:
    return msgspec.json.encode(secrets).decode()
