"""Tools that are plain async functions of this process: the built-in ones, and those that tests bring."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from msgspec import Struct

from services.messages.model import Outcome, Text, ToolCall, ToolReturn
from services.tools.api import ToolContext, ToolDefinition

Function = Callable[[dict[str, Any], ToolContext], Awaitable[str]]


class ToolFailed(Exception):
    """Told to the model as the call's return."""


class FunctionTool(Struct, frozen=True):
    """A definition and the function behind it."""

    definition: ToolDefinition
    function: Function


class FunctionTools:
    """Runs tools that need no sandbox."""

    def __init__(self, tools: Iterable[FunctionTool]) -> None:
        self._by_name = {tool.definition.name: tool for tool in tools}

    def all(self) -> list[ToolDefinition]:
        """Every tool, by name."""
        return [self._by_name[name].definition for name in sorted(self._by_name)]

    async def run(self, tool: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolReturn:
        """Run a call; cancelling the task cancels the function."""
        try:
            text = await self._by_name[tool.name].function(json.loads(call.arguments), context)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # whatever a tool raises is its outcome
            return ToolReturn(call.id, call.name, Outcome.FAILED, (Text(f"Error: {error}"),))
        return ToolReturn(call.id, call.name, Outcome.SUCCEEDED, (Text(text),))
