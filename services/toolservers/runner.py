"""Runs the calls of tools that a tool server has. Whatever goes wrong there is the call's outcome."""

import asyncio

from common.errors import BridleError
from services.messages.model import Outcome, Text, ToolCall, ToolReturn
from services.tools.api import Mcp, Remote, ToolContext, ToolDefinition
from services.toolservers.api import Answer, Call, ServerFailed
from services.toolservers.metrics import ToolServerMetrics
from services.toolservers.model import ToolServer
from services.toolservers.pool import Pool


class ToolServerRunner:
    """For tools of the kinds Remote and Mcp."""

    def __init__(self, pool: Pool, metrics: ToolServerMetrics, *, timeout: float) -> None:
        self._pool = pool
        self._metrics = metrics
        self._timeout = timeout

    async def run(self, tool: ToolDefinition, call: ToolCall, context: ToolContext) -> ToolReturn:
        """Run a call. Cancelling the task cancels it on the server."""
        if not isinstance(tool.kind, Remote | Mcp):
            raise TypeError(f"{tool.name} is not a tool of a tool server")
        request = _request(tool.kind.tool or tool.name, call, context, tool.timeout or self._timeout)
        try:
            server = await self._pool.find(context.organization_id, tool.kind.server)
            answer = await self._call(server, request)
        except ServerFailed as error:
            return _failed(call, f"Error: the tool server '{tool.kind.server}' {error.cause}.")
        except BridleError as error:  # a secret that cannot be opened, a database that is not there
            return _failed(call, f"Error: {error}")
        return ToolReturn(call.id, call.name, answer.outcome, answer.content, answer.stdout, answer.stderr)

    async def _call(self, server: ToolServer, request: Call) -> Answer:
        outcome = "error"
        try:
            async with self._pool.using(server) as connection:
                answer = await connection.call(request)
            outcome = answer.outcome.value
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        except ServerFailed as error:
            outcome = error.outcome
            raise
        finally:
            self._metrics.called(server.kind, outcome)
        return answer


def _request(tool: str, call: ToolCall, context: ToolContext, timeout: float) -> Call:
    return Call(
        tool=tool,
        arguments=call.arguments,
        call_id=context.call_id,
        agent_id=context.agent_id,
        run_id=context.run_id,
        organization_id=context.organization_id,
        deadline=asyncio.get_running_loop().time() + timeout,
        timeout=timeout,
        progress=context.progress,
    )


def _failed(call: ToolCall, text: str) -> ToolReturn:
    return ToolReturn(call.id, call.name, Outcome.FAILED, (Text(text),))
