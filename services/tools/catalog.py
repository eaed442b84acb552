"""Finding tools."""

from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import Connection

from services.tools.api import ToolDefinition


class ToolCatalog(Protocol):
    """Finds definitions. It reads in the caller's transaction, so that an agent never refers to a tool that is gone."""

    def find(
        self, conn: Connection, organization_id: str, ids: Sequence[str], names: Sequence[str] = ()
    ) -> list[ToolDefinition]:
        """The tools with these ids, then those with these names; NotFound names the first that is missing."""
        ...

    def load(self, conn: Connection, organization_id: str, ids: Sequence[str]) -> list[ToolDefinition]:
        """Those of these tools that are still there: a run must not be stuck because a tool is gone."""
        ...
