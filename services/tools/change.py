"""Creating and changing stored tools, inside the caller's transaction."""

from msgspec.structs import replace
from sqlalchemy import Connection

from common.clock import Clock
from common.errors import AlreadyExists, EtagMismatch, InvalidArgument, ResourceInUse
from common.ids import IdSource, Prefix
from common.pb.bridle.v1 import tool_pb2
from services.tools import convert, store
from services.tools.api import Python
from services.tools.catalog import Catalog
from services.tools.model import Tool, ToolSpec
from services.wire import masks


class Changes:
    """What callers do to tools. Names are unique in an organization, those of the built-in tools included."""

    def __init__(self, catalog: Catalog, clock: Clock, ids: IdSource) -> None:
        self._catalog = catalog
        self._clock = clock
        self._ids = ids

    def upsert(
        self, name: str, wanted: tool_pb2.Tool, paths: tuple[str, ...], conn: Connection, organization_id: str
    ) -> Tool:
        """The Python tool of that name, created or changed."""
        self._reserve(conn, organization_id, name)
        current = store.lock_named(conn, organization_id, name)
        if current is None:
            return self._create(conn, organization_id, wanted)
        if not isinstance(current.spec.kind, Python):
            raise AlreadyExists("tool", name)
        return self._change(conn, current, wanted, paths)

    def update(self, conn: Connection, organization_id: str, wanted: tool_pb2.Tool, paths: tuple[str, ...]) -> Tool:
        """The tool with these paths taken from what is wanted."""
        return self._change(conn, store.lock(conn, organization_id, wanted.id), wanted, paths)

    def _create(self, conn: Connection, organization_id: str, wanted: tool_pb2.Tool) -> Tool:
        name, spec = convert.from_pb(wanted)
        now = self._clock.now()
        tool = Tool(
            id=self._ids(Prefix.TOOL),
            organization_id=organization_id,
            name=name,
            spec=spec,
            tags=tuple(sorted(wanted.tags)),
            version=1,
            created_at=now,
            updated_at=now,
        )
        store.insert(conn, tool)
        return tool

    def _change(self, conn: Connection, current: Tool, wanted: tool_pb2.Tool, paths: tuple[str, ...]) -> Tool:
        _require_etag(current, wanted.etag)
        merged = masks.copy(wanted, convert.settable_pb(current), paths)
        _require_kind(current, merged)
        name, spec = convert.from_pb(merged)
        if isinstance(current.spec.kind, Python):
            self._rename(conn, current, name)
        else:
            spec = replace(spec, kind=current.spec.kind)
            _require_as_the_server_says(current, name, spec)
        if spec.parameters == current.spec.parameters:
            # A Struct has no order; the one that the model has seen so far keeps its provider's cache warm.
            spec = replace(spec, parameters=current.spec.parameters)
        changed = replace(current, name=name, spec=spec, tags=tuple(sorted(merged.tags)))
        if changed == current:
            return current
        changed = replace(changed, version=current.version + 1, updated_at=self._clock.now())
        store.replace(conn, current, changed)
        return changed

    def _rename(self, conn: Connection, current: Tool, name: str) -> None:
        if name == current.name:
            return
        self._reserve(conn, current.organization_id, name)
        if store.lock_named(conn, current.organization_id, name) is not None:
            raise AlreadyExists("tool", name)
        # Rules go by name: under another one the tool would not wait for a person any more.
        users = store.agents_with(conn, current.organization_id, current.id)
        if users:
            raise ResourceInUse("tool", current.id, f"agent '{users[0]}'")

    def _reserve(self, conn: Connection, organization_id: str, name: str) -> None:
        store.reserve(conn, organization_id, name)


def _require_etag(tool: Tool, etag: str) -> None:
    current = convert.etag(tool.version)
    if etag and etag != current:
        raise EtagMismatch("tool", tool.id, current)


def _require_kind(current: Tool, merged: tool_pb2.Tool) -> None:
    is_now, was = merged.WhichOneof("kind"), convert.to_pb(current).WhichOneof("kind")
    if is_now != was:
        raise InvalidArgument.of(f"tool.{is_now or was}", f"cannot be changed: the tool is of the kind '{was}'")


def _require_as_the_server_says(current: Tool, name: str, spec: ToolSpec) -> None:
    """What a tool server says of its tools is its business; a sync would bring it back anyway."""
    said = {
        "name": (name, current.name),
        "description": (spec.description, current.spec.description),
        "parameters": (spec.parameters, current.spec.parameters),
    }
    for field, (is_now, was) in said.items():
        if is_now != was:
            raise InvalidArgument.of(f"tool.{field}", "cannot be changed: it comes from the tool server")
