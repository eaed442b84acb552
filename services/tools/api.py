"""What the engine knows of tools: their definitions, and something that runs them."""

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from services.messages.model import ToolCall, ToolReturn


class CrashPolicy(StrEnum):
    """What to do with a call that was running when the server crashed."""

    NEVER = "never"
    RETRY = "retry"
    ASK = "ask"


class Builtin(Struct, frozen=True, tag="builtin"):
    """Part of this program."""


class Python(Struct, frozen=True, tag="python", omit_defaults=True):
    """A function that runs in the sandbox."""

    source: str
    requirements: tuple[str, ...] = ()


class Remote(Struct, frozen=True, tag="remote", omit_defaults=True):
    """Served by a gRPC tool server, by its name."""

    server: str
    # What the server calls it; empty: the same as we do.
    tool: str = ""


class Mcp(Struct, frozen=True, tag="mcp", omit_defaults=True):
    """Served by an MCP server, by its name."""

    server: str
    # What the server calls it; empty: the same as we do.
    tool: str = ""


Kind = Builtin | Python | Remote | Mcp


class ToolDefinition(Struct, frozen=True):
    """A tool as the model sees it and as the engine treats it."""

    id: str
    name: str
    description: str
    parameters: dict[str, Any]
    default_requires_approval: bool = False
    parallel: bool = False
    crash_policy: CrashPolicy = CrashPolicy.NEVER
    return_char_limit: int = 50_000
    kind: Kind = Builtin()
    # Longest run in seconds; None: the server's setting.
    timeout: float | None = None


class ToolContext(Struct, frozen=True):
    """On whose behalf a call is made, and where it reports to."""

    organization_id: str
    agent_id: str
    run_id: str
    # The idempotency key of the call: the same if it is made again after a crash.
    call_id: str
    progress: Callable[[str], None]


class ToolRunner(Protocol):
    """Runs calls. Cancelling the awaiting task stops the tool at once."""

    async def run(self, tool: ToolDefinition, call: "ToolCall", context: ToolContext) -> "ToolReturn":
        """The call's outcome. A failing tool is an outcome, not an exception."""
        ...
