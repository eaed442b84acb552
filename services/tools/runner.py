"""Runs every kind of tool, with what they have in common: the limit on time, the cut of long returns, metrics.

A failing tool is an outcome that the model reads; whether a call that a crash struck is made again is the engine's
decision, by the tool's policy. `context.call_id` is the same then: a tool that keeps it can tell a repeat.
"""

import asyncio
import logging

from msgspec import Struct
from msgspec.structs import replace

from common.clock import Clock
from services.messages.model import Image, Outcome, Text, ToolCall, ToolReturn
from services.tools.api import Builtin, Mcp, Python, Remote, ToolContext, ToolDefinition, ToolRunner
from services.tools.metrics import ToolMetrics
from services.tools.model import kind_name

logger = logging.getLogger(__name__)

# Whoever keeps the limit elsewhere can say more about what happened until then: let it speak first.
_GRACE_SECONDS = 2.0


class Runners(Struct, frozen=True):
    """Who runs which kind."""

    builtin: ToolRunner
    python: ToolRunner
    remote: ToolRunner
    mcp: ToolRunner


class CompositeRunner:
    """The runner of a server."""

    def __init__(self, runners: Runners, *, seconds: float, metrics: ToolMetrics, clock: Clock) -> None:
        self._runners = runners
        self._seconds = seconds
        self._metrics = metrics
        self._clock = clock

    async def run(self, tool: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolReturn:
        """The call's outcome; cancelling the task stops the tool."""
        began, outcome = self._clock.monotonic(), "cancelled"
        try:
            outcome, result = await self._limited(tool, call, context)
            return cut(result, tool.return_char_limit)
        finally:
            self._metrics.ended(kind_name(tool.kind), outcome, self._clock.monotonic() - began)

    async def _limited(self, tool: ToolDefinition, call: ToolCall, context: ToolContext) -> tuple[str, ToolReturn]:
        seconds = self._seconds if tool.timeout is None else tool.timeout
        grace = 0.0 if isinstance(tool.kind, Builtin) else _GRACE_SECONDS
        limit = asyncio.timeout(seconds + grace)
        try:
            async with limit:
                result = await self._runner(tool).run(replace(tool, timeout=seconds), call, context)
        except Exception as error:
            if limit.expired():
                return "timeout", failed(call, timed_out(seconds))
            logger.error("a tool runner broke", exc_info=error, extra={"fields": {"kind": kind_name(tool.kind)}})
            return "broken", failed(call, "the tool could not be run")
        return result.outcome.value, result

    def _runner(self, tool: ToolDefinition) -> ToolRunner:
        match tool.kind:
            case Builtin():
                return self._runners.builtin
            case Python():
                return self._runners.python
            case Remote():
                return self._runners.remote
            case Mcp():
                return self._runners.mcp


def failed(call: ToolCall, text: str) -> ToolReturn:
    """A failure, as the model reads it."""
    return ToolReturn(call.id, call.name, Outcome.FAILED, (Text(f"Error: {text}"),))


def timed_out(seconds: float) -> str:
    """What is said of a call that took too long."""
    return f"the tool did not finish within {seconds:g} s and was stopped"


def cut(result: ToolReturn, limit: int) -> ToolReturn:
    """The return with at most so many characters of text, and a notice where something is left out."""
    if sum(len(part.text) for part in result.content if isinstance(part, Text)) <= limit:
        return result
    room, kept = limit, list[Text | Image]()
    for part in result.content:
        if isinstance(part, Text):
            over = len(part.text) - room
            kept.append(Text(f"{part.text[:room]}... [truncated {over} chars]") if over > 0 else part)
            room = max(0, room - len(part.text))
        else:
            kept.append(part)
    return replace(result, content=tuple(kept))
