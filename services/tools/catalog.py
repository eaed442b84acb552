"""Finding tools: those of an organization, and those that are part of this program."""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from common.db.paging import SortKey, decode_token, encode_token, list_scope
from common.errors import NotFound
from services.tools import store
from services.tools.api import ToolDefinition
from services.tools.model import Tool, ToolFilter, kind_name

if TYPE_CHECKING:
    from sqlalchemy import Connection

# Where a page ended: among the stored tools, or among the built-in ones, which come after them.
_STORED, _BUILTIN = "s", "b"


class ToolCatalog(Protocol):
    """Finds definitions. It reads in the caller's transaction, so that an agent never refers to a tool that is gone."""

    def find(
        self, conn: "Connection", organization_id: str, ids: Sequence[str], names: Sequence[str] = ()
    ) -> list[ToolDefinition]:
        """The tools with these ids, then those with these names; NotFound names the first that is missing."""
        ...

    def load(self, conn: "Connection", organization_id: str, ids: Sequence[str]) -> list[ToolDefinition]:
        """Those of these tools that are still there: a run must not be stuck because a tool is gone."""
        ...


class Catalog:
    """The catalog of a server: what its database holds, and what it has built in."""

    def __init__(self, builtin: Sequence[ToolDefinition]) -> None:
        self._builtin = sorted(builtin, key=lambda tool: tool.name)
        self._by_name = {tool.name: tool for tool in builtin}
        self._by_id = {tool.id: tool for tool in builtin}

    def builtin(self, *, tool_id: str = "", name: str = "") -> ToolDefinition | None:
        """A built-in tool by its id or its name."""
        return self._by_id.get(tool_id) or self._by_name.get(name)

    @property
    def reserved(self) -> Collection[str]:
        """Names that no other tool can have."""
        return self._by_name.keys()

    def find(
        self, conn: "Connection", organization_id: str, ids: Sequence[str], names: Sequence[str] = ()
    ) -> list[ToolDefinition]:
        """The tools with these ids, then those with these names; they stay there until the transaction ends."""
        known = self._by_id | self._stored(conn, organization_id, ids)
        # Who has a tool of their own by the name of a built-in one means their own.
        by_name = store.by_name(conn, organization_id, names, keep=True)
        known_names = {**self._by_name, **{name: tool.definition for name, tool in by_name.items()}}
        for there, wanted in ((known, ids), (known_names, names)):
            missing = next((each for each in wanted if each not in there), None)
            if missing is not None:
                raise NotFound("tool", missing)
        return [known[each] for each in ids] + [known_names[each] for each in names]

    def load(self, conn: "Connection", organization_id: str, ids: Sequence[str]) -> list[ToolDefinition]:
        """Those of these tools that are still there."""
        stored = [each for each in ids if each not in self._by_id]
        found = {tool.id: tool.definition for tool in store.by_id(conn, organization_id, stored).values()}
        taken = {tool.name for tool in found.values()}
        known = {key: tool for key, tool in self._by_id.items() if tool.name not in taken} | found
        return [known[each] for each in ids if each in known]

    def get(self, conn: "Connection", organization_id: str, tool_id: str) -> Tool | ToolDefinition:
        """One tool, or NotFound."""
        return self._by_id.get(tool_id) or store.get(conn, organization_id, tool_id)

    def list_page(
        self, conn: "Connection", organization_id: str, wanted: ToolFilter, *, size: int, token: str
    ) -> tuple[list[Tool | ToolDefinition], str]:
        """A page of tools, the stored ones newest first and then the built-in ones by name; the token of the next."""
        scope = list_scope("ListTools", organization_id, wanted)
        key = decode_token(scope, token)
        found: list[Tool | ToolDefinition] = []
        if key is None or key[0] == _STORED:
            found += store.list_after(conn, organization_id, wanted, key and key[1:], size + 1)
        if len(found) <= size:
            found += self._builtin_after(wanted, str(key[1]) if key is not None and key[0] == _BUILTIN else "")
        if len(found) <= size:
            return found, ""
        return found[:size], encode_token(scope, _key(found[size - 1]))

    def _stored(self, conn: "Connection", organization_id: str, ids: Sequence[str]) -> dict[str, ToolDefinition]:
        wanted = [each for each in ids if each not in self._by_id]
        found = store.by_id(conn, organization_id, wanted, keep=True)
        return {tool_id: tool.definition for tool_id, tool in found.items()}

    def _builtin_after(self, wanted: ToolFilter, name: str) -> list[ToolDefinition]:
        return [tool for tool in self._builtin if tool.name > name and _matches(tool, wanted)]


def _key(tool: Tool | ToolDefinition) -> SortKey:
    if isinstance(tool, Tool):
        return _STORED, tool.created_at, tool.id
    return _BUILTIN, tool.name


def _matches(tool: ToolDefinition, wanted: ToolFilter) -> bool:
    return (
        (wanted.ids is None or tool.id in wanted.ids)
        and (not wanted.names or tool.name in wanted.names)
        and (not wanted.kinds or kind_name(tool.kind) in wanted.kinds)
        and not wanted.tags
        and wanted.query.casefold() in f"{tool.name}\n{tool.description}".casefold()
    )
