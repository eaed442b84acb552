"""A real MCP server: as a program it serves its standard streams. It is run without our packages on its path."""

import asyncio
import base64
import os
import sys
from pathlib import Path
from typing import Any

import mcp_types
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


class Record:
    """What the server has seen: kept in a file, since it may be another process."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, line: str) -> None:
        with self.path.open("a") as file:
            file.write(line + "\n")

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []


def build(record: Record) -> MCPServer:
    """The server with its tools."""
    server = MCPServer("tests")
    _add_plain(server)

    @server.tool()
    async def slow(context: Context[Any, Any], seconds: float = 60) -> str:
        """Waits."""
        record.add("started")
        try:
            await context.report_progress(1, 2, "half way")
            await context.report_progress(2, 2)
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            record.add("cancelled")
            raise
        return "waited"

    @server.tool()
    async def who(context: Context[Any, Any]) -> str:
        """Says which call this is."""
        meta = context.request_context.meta or {}
        return str(meta.get("bridle.dev/toolCallId"))

    return server


def _add_plain(server: MCPServer) -> None:
    @server.tool(annotations=mcp_types.ToolAnnotations(read_only_hint=True), structured_output=False)
    def echo(text: str) -> str:
        """Says it again."""
        return text

    @server.tool(structured_output=False)
    def fails() -> str:
        """Fails."""
        raise ToolError("as told")

    @server.tool(structured_output=False)
    def big(size: int) -> str:
        """Says a lot."""
        return "x" * size

    @server.tool(structured_output=False)
    def picture() -> list[Any]:
        """Draws."""
        return [Image(data=PIXEL, format="png"), "a pixel"]

    @server.tool(structured_output=False)
    def environment() -> str:
        """Its environment and its folder."""
        return f"{sorted(os.environ)} {os.environ.get('SECRET')} {os.getcwd()}"

    @server.tool(structured_output=False)
    def pid() -> str:
        """Its process."""
        return str(os.getpid())

    @server.tool(structured_output=False)
    def die() -> str:
        """Ends its process."""
        os._exit(3)

    @server.tool(name="a.name/that models-do not accept, and that is rather long too", structured_output=False)
    def oddly_named() -> str:
        """Has a name that must be changed."""
        return "odd"


if __name__ == "__main__":
    build(Record(Path(sys.argv[1]))).run("stdio")
