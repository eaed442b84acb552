"""An MCP server: its session, opened when it is needed and again when it is lost."""

import asyncio
from typing import Any, Final, cast

import msgspec
from mcp import Client, MCPError
from mcp import types as mcp_types

from services.toolservers.api import MAX_TOOLS, UNREACHABLE, Answer, Call, ServerFailed, bounded_progress, timed_out
from services.toolservers.mcp_convert import answer_from_mcp, offered_from_mcp
from services.toolservers.mcp_session import Session, Transport
from services.toolservers.model import OfferedTool

_META: Final = "bridle.dev/toolCallId"


class McpConnection:
    """One server. Several calls share a session."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._session: Session | None = None
        self._old: set[asyncio.Task[None]] = set()
        self.healthy = True

    async def offered(self, deadline: float) -> list[OfferedTool]:
        """The tools it offers."""
        session, client = await self._open(deadline)
        try:
            return offered_from_mcp(await session.run(_listed(client), deadline))
        except TimeoutError:
            raise ServerFailed("timeout", "did not answer in time") from None
        except (MCPError, ValueError, RuntimeError) as error:
            raise self._failure(error, session) from None

    async def call(self, call: Call) -> Answer:
        """Make a call."""
        session, client = await self._open(call.deadline)
        try:
            return await self._called(session, client, call)
        except MCPError as error:
            # A server that does not know the session has not looked at the call.
            if session.usable or error.code == mcp_types.CONNECTION_CLOSED:
                raise self._failure(error, session) from None
        session, client = await self._open(call.deadline)
        try:
            return await self._called(session, client, call)
        except MCPError as error:
            raise self._failure(error, session) from None

    async def close(self) -> None:
        """End the session, and with it the server's process if it has one."""
        if self._session is not None:
            await self._session.close()
        if self._old:
            await asyncio.wait(self._old)

    async def _called(self, session: Session, client: Client, call: Call) -> Answer:
        report = bounded_progress(call.progress)

        async def on_progress(progress: float, total: float | None, message: str | None) -> None:
            report(message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}"))

        work = client.call_tool(
            call.tool,
            _arguments(call),
            progress_callback=on_progress,
            meta=cast("mcp_types.RequestParamsMeta", {_META: call.call_id}),
        )
        try:
            return answer_from_mcp(await session.run(work, call.deadline))
        except TimeoutError:
            raise timed_out(call) from None
        except (ValueError, RuntimeError) as error:
            raise self._failure(error, session) from None

    async def _open(self, deadline: float) -> tuple[Session, Client]:
        if self._session is None or not self._session.usable:
            self._replace()
        session = self._session
        assert session is not None  # noqa: S101 - it was just made
        try:
            client = await session.client(deadline)
        except ServerFailed:
            self.healthy = False
            raise
        self.healthy = True
        return session, client

    def _replace(self) -> None:
        if self._session is not None:
            task = asyncio.create_task(self._session.close())
            self._old.add(task)
            task.add_done_callback(self._old.discard)
        self._session = Session(self._transport)

    def _failure(self, error: Exception, session: Session) -> ServerFailed:
        if isinstance(error, MCPError) and error.code == mcp_types.CONNECTION_CLOSED and session.lost:
            return ServerFailed("unavailable", session.lost)
        text = " ".join(str(error).split())[:500]
        if isinstance(error, MCPError) and error.code == UNREACHABLE:
            self.healthy = False
            return ServerFailed("unavailable", f"cannot be reached ({text})")
        if isinstance(error, MCPError) and error.code == mcp_types.CONNECTION_CLOSED:
            return ServerFailed("unavailable", f"broke the answer off ({text})")
        if isinstance(error, MCPError):
            return ServerFailed("refused", f"refused ({text})")
        return ServerFailed("broken", f"answered with what cannot be read ({text})")


async def _listed(client: Client) -> list[mcp_types.Tool]:
    tools: list[mcp_types.Tool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if len(tools) > MAX_TOOLS or (cursor and not page.tools):
            raise ServerFailed("broken", f"offers more than {MAX_TOOLS:,} tools, or lists them without an end")
        if not cursor:
            return tools


def _arguments(call: Call) -> dict[str, Any]:
    try:
        return msgspec.json.decode(call.arguments or "{}", type=dict[str, Any])
    except msgspec.MsgspecError:
        raise ServerFailed("refused", "was not called: the arguments are not a JSON object") from None
