"""What is known of tool servers. Values only: no storage, no transport."""

from datetime import datetime
from typing import Any

from msgspec import Struct


class Grpc(Struct, frozen=True, tag="grpc", omit_defaults=True):
    """A service that implements ToolExecutor."""

    target: str
    ca_pem: str = ""
    plaintext: bool = False
    certificate_pem: str = ""

    @property
    def place(self) -> object:
        """Where secrets are sent to."""
        # The key proves the possession of one certificate: with another one it is of no use.
        return self.target, self.certificate_pem


class McpStdio(Struct, frozen=True, tag="mcp_stdio"):
    """An MCP server that is a child process."""

    command: tuple[str, ...]

    @property
    def place(self) -> object:
        """Where secrets are sent to."""
        return self.command


class McpHttp(Struct, frozen=True, tag="mcp_http"):
    """An MCP server reached over streamable HTTP."""

    url: str

    @property
    def place(self) -> object:
        """Where secrets are sent to."""
        return self.url


Reach = Grpc | McpStdio | McpHttp


class Secrets(Struct, frozen=True, omit_defaults=True):
    """What is sealed: an environment or headers, and the key of a certificate."""

    values: dict[str, str] = {}
    key_pem: str = ""

    def __bool__(self) -> bool:
        return bool(self.values or self.key_pem)


class ToolServer(Struct, frozen=True):
    """A tool server as it is stored."""

    organization_id: str
    name: str
    reach: Reach
    sealed: bytes | None
    synced_at: datetime | None
    version: int
    created_at: datetime
    updated_at: datetime

    @property
    def kind(self) -> str:
        """How it is reached, in one word."""
        return kind_of(self.reach)

    @property
    def revision(self) -> tuple[datetime, int]:
        """Changes with every change of the server, also when it is deleted and made again."""
        return self.created_at, self.version


class OfferedTool(Struct, frozen=True):
    """A tool as its server describes it; None where the server does not say, or cannot be trusted to."""

    name: str
    description: str
    parameters: dict[str, Any]
    parallel: bool
    idempotent: bool | None = None


def kind_of(reach: Reach) -> str:
    """How a server is reached, in one word."""
    return str(reach.__struct_config__.tag)


def sealed_at(organization_id: str, name: str) -> str:
    """The place that a server's secrets are sealed for."""
    return f"tool_servers/{organization_id}/{name}"
