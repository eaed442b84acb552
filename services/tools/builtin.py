"""Tools that every server has."""

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

from services.tools.api import CrashPolicy, ToolContext, ToolDefinition
from services.tools.functions import FunctionTool, ToolFailed

_MAX_WAIT_SECONDS = 3600


async def _roll_dice(arguments: dict[str, Any], context: ToolContext) -> str:
    sides = arguments.get("sides", 6)
    if not isinstance(sides, int) or not 2 <= sides <= 1000:
        raise ToolFailed("sides must be a whole number from 2 to 1000")
    return str(random.randint(1, sides))  # noqa: S311 - a game, not a secret


async def _get_time(arguments: dict[str, Any], context: ToolContext) -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


async def _wait(arguments: dict[str, Any], context: ToolContext) -> str:
    seconds = arguments.get("seconds", 1)
    if not isinstance(seconds, int | float) or not 0 <= seconds <= _MAX_WAIT_SECONDS:
        raise ToolFailed(f"seconds must be a number from 0 to {_MAX_WAIT_SECONDS}")
    context.progress(f"waiting for {seconds} s")
    await asyncio.sleep(seconds)
    return f"waited {seconds} s"


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": []}


# Ids are part of the contract: agents refer to them.
BUILTIN_TOOLS = (
    FunctionTool(
        ToolDefinition(
            id="tool-0b1d1e00-0000-4000-8000-000000000001",
            name="roll_dice",
            description="Rolls a die and returns the number.",
            parameters=_object(sides={"type": "integer", "description": "How many sides, 6 if not given."}),
            parallel=True,
            crash_policy=CrashPolicy.RETRY,
        ),
        _roll_dice,
    ),
    FunctionTool(
        ToolDefinition(
            id="tool-0b1d1e00-0000-4000-8000-000000000002",
            name="get_time",
            description="Returns the current time in UTC.",
            parameters=_object(),
            parallel=True,
            crash_policy=CrashPolicy.RETRY,
        ),
        _get_time,
    ),
    FunctionTool(
        ToolDefinition(
            id="tool-0b1d1e00-0000-4000-8000-000000000003",
            name="wait",
            description="Waits, and returns when it has waited.",
            parameters=_object(seconds={"type": "number", "description": "How long, 1 if not given."}),
            parallel=True,
            crash_policy=CrashPolicy.RETRY,
            timeout=_MAX_WAIT_SECONDS + 60.0,
        ),
        _wait,
    ),
)
