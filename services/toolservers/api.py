"""What the rest of the package knows of a connection to a tool server, whatever it speaks."""

from collections.abc import Callable
from typing import Final, Protocol

from msgspec import Struct

from services.messages.model import Image, Outcome, Text
from services.toolservers.model import OfferedTool

MAX_TOOLS: Final = 1000
MAX_DESCRIPTION: Final = 10_000
# Longer answers are refused while they arrive.
MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
# Our own JSON-RPC error, for a server that did not say any.
UNREACHABLE: Final = -32_901
_MAX_PROGRESS: Final = 1000
_MAX_PROGRESS_CHARS: Final = 1000


class ServerFailed(Exception):
    """Why a server did not answer, as the rest of a sentence that begins with its name."""

    def __init__(self, outcome: str, cause: str) -> None:
        super().__init__(cause)
        # For the metrics: unavailable, unhealthy, timeout, too_large, refused or broken.
        self.outcome = outcome
        self.cause = cause


class Call(Struct, frozen=True):
    """A call to make."""

    tool: str
    # A JSON object, byte for byte as it was approved.
    arguments: str
    call_id: str
    agent_id: str
    run_id: str
    organization_id: str
    # On the loop's clock.
    deadline: float
    # How many seconds that was at first.
    timeout: float
    progress: Callable[[str], None]


class Answer(Struct, frozen=True):
    """What a tool returned."""

    outcome: Outcome
    content: tuple[Text | Image, ...]
    stdout: tuple[str, ...] = ()
    stderr: tuple[str, ...] = ()


class Fate(Protocol):
    """What a transport tells its session."""

    def end(self, reason: str) -> None:
        """It is of no use any more."""
        ...

    def forget(self) -> None:
        """The server knows it no longer."""
        ...


class Connection(Protocol):
    """One server. It is opened when it is needed, and again when it is lost."""

    @property
    def healthy(self) -> bool:
        """Whether it was, when it was last asked."""
        ...

    async def offered(self, deadline: float) -> list[OfferedTool]:
        """The tools it offers. Raises ServerFailed."""
        ...

    async def call(self, call: Call) -> Answer:
        """Make a call; cancelling the task stops it there. Raises ServerFailed."""
        ...

    async def close(self) -> None:
        """Let go of it; calls that are open end."""
        ...


def bounded_progress(show: Callable[[str], None]) -> Callable[[str], None]:
    """Progress as a server reports it, cut to what a run's log can bear."""
    shown = 0

    def report(text: str) -> None:
        nonlocal shown
        shown += 1
        if shown <= _MAX_PROGRESS:
            show(text.replace("\0", "")[:_MAX_PROGRESS_CHARS])

    return report


def timed_out(call: Call) -> ServerFailed:
    """It took too long."""
    return ServerFailed("timeout", f"did not answer within {call.timeout:g} s")
