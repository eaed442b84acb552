"""Tools that are plain async functions of this process: the built-in ones, and those that tests bring."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from common.errors import NotFound
from services.messages.model import Outcome, Text, ToolCall, ToolReturn
from services.tools.api import ToolContext, ToolDefinition

if TYPE_CHECKING:
    from sqlalchemy import Connection

Function = Callable[[dict[str, Any], ToolContext], Awaitable[str]]


class ToolFailed(Exception):
    """Told to the model as the call's return."""


class FunctionTool(Struct, frozen=True):
    """A definition and the function behind it."""

    definition: ToolDefinition
    function: Function


class FunctionTools:
    """A catalog and a runner in one, for tools that need no sandbox."""

    def __init__(self, tools: Iterable[FunctionTool]) -> None:
        self._by_name = {tool.definition.name: tool for tool in tools}
        self._by_id = {tool.definition.id: tool for tool in self._by_name.values()}

    def all(self) -> list[ToolDefinition]:
        """Every tool, by name."""
        return [self._by_name[name].definition for name in sorted(self._by_name)]

    def find(
        self, conn: "Connection", organization_id: str, ids: Sequence[str], names: Sequence[str] = ()
    ) -> list[ToolDefinition]:
        """The tools with these ids, then those with these names."""
        for known, wanted in ((self._by_id, ids), (self._by_name, names)):
            missing = next((each for each in wanted if each not in known), None)
            if missing is not None:
                raise NotFound("tool", missing)
        return [self._by_id[each].definition for each in ids] + [self._by_name[each].definition for each in names]

    def load(self, conn: "Connection", organization_id: str, ids: Sequence[str]) -> list[ToolDefinition]:
        """Those of these tools that are still there."""
        return [self._by_id[each].definition for each in ids if each in self._by_id]

    async def run(self, tool: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolReturn:
        """Run a call; cancelling the task cancels the function."""
        try:
            text = await self._by_name[tool.name].function(json.loads(call.arguments), context)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever a tool raises is its outcome
            return ToolReturn(call.id, call.name, Outcome.FAILED, (Text(f"Error: {error}"),))
        return ToolReturn(call.id, call.name, Outcome.SUCCEEDED, (Text(text),))
