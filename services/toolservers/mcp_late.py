"""Keeps the mcp package out of a server until it is needed: it takes half a second and 18 MB to load."""

import asyncio

from services.toolservers.api import Answer, Call, Connection, ServerFailed
from services.toolservers.model import McpHttp, McpStdio, OfferedTool, Secrets


class LateMcpConnection:
    """A connection to an MCP server, made at its first use."""

    def __init__(self, reach: McpStdio | McpHttp, secrets: Secrets, *, private: bool) -> None:
        self._reach = reach
        self._secrets = secrets
        self._private = private
        self._inner: Connection | None = None
        self._making = asyncio.Lock()
        self._closed = False

    @property
    def healthy(self) -> bool:
        """Whether it was, when it was last asked."""
        return self._inner is None or self._inner.healthy

    async def offered(self, deadline: float) -> list[OfferedTool]:
        """The tools it offers."""
        return await (await self._made()).offered(deadline)

    async def call(self, call: Call) -> Answer:
        """Make a call."""
        return await (await self._made()).call(call)

    async def close(self) -> None:
        """Let go of it."""
        self._closed = True
        if self._inner is not None:
            await self._inner.close()

    async def _made(self) -> Connection:
        async with self._making:
            if self._inner is None:
                # In a thread, because the loop has other things to do meanwhile.
                self._inner = await asyncio.to_thread(self._make)
        if self._closed:
            raise ServerFailed("unavailable", "was deleted or changed")
        return self._inner

    def _make(self) -> Connection:
        from services.toolservers.mcp_open import open_mcp  # noqa: PLC0415 - this is what the module is for

        return open_mcp(self._reach, self._secrets, private=self._private)
