"""From how a server is reached to a connection."""

from services.toolservers.api import Connection, ServerFailed
from services.toolservers.mcp_late import LateMcpConnection
from services.toolservers.model import Grpc, McpStdio, Reach, Secrets
from services.toolservers.pool import Connect
from services.toolservers.remote import RemoteConnection
from services.toolservers.validate import Limits, is_allowed


def connector(limits: Limits) -> Connect:
    """Makes connections within what the operator allows now, which may be less than when a server was registered."""

    def connect(reach: Reach, secrets: Secrets) -> Connection:
        if isinstance(reach, Grpc):
            return RemoteConnection(reach, secrets)
        if isinstance(reach, McpStdio) and not is_allowed(reach.command, limits.commands):
            raise ServerFailed("refused", "has a command that may not be started here (BRIDLE_MCP_COMMANDS)")
        return LateMcpConnection(reach, secrets, private=limits.private)

    return connect
