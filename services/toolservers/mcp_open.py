"""From how an MCP server is reached to a connection. Only `mcp_late` imports this, when it is needed."""

from services.toolservers.api import MAX_ANSWER_BYTES, Connection
from services.toolservers.mcp_connection import McpConnection
from services.toolservers.mcp_http import http_transport
from services.toolservers.mcp_stdio import stdio_transport
from services.toolservers.model import McpHttp, McpStdio, Secrets


def open_mcp(reach: McpStdio | McpHttp, secrets: Secrets, *, private: bool) -> Connection:
    """A connection that is opened when it is used."""
    match reach:
        case McpStdio(command=command):
            return McpConnection(lambda session: stdio_transport(command, secrets.values, MAX_ANSWER_BYTES, session))
        case McpHttp(url=url):
            return McpConnection(
                lambda session: http_transport(url, secrets.values, MAX_ANSWER_BYTES, session, private=private)
            )
