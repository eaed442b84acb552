"""What goes into the sandbox, what comes out, and what protects the machine from it."""

from enum import StrEnum

from msgspec import Struct


class Mode(StrEnum):
    """Which walls must stand before code of others runs."""

    # All that this program knows of.
    STRICT = "strict"
    # `MINIMUM` below: what an unprivileged container on a current kernel has.
    MINIMUM = "minimum"
    # Whatever there is, even none: code of others may then do what the server may do.
    OFF = "off"


class Wall(StrEnum):
    """One thing that keeps code inside, by the name that logs and metrics use."""

    FILES = "files"
    OWN_ROOT = "own_root"
    LANDLOCK = "landlock"
    NETWORK = "network"
    SYSCALLS = "syscalls"
    NO_NEW_PRIVILEGES = "no_new_privileges"
    NO_CAPABILITIES = "no_capabilities"
    NOT_ROOT = "not_root"
    LIMITS = "limits"
    KILLABLE = "killable"
    OWN_PROCESSES = "own_processes"


MINIMUM = frozenset({Wall.FILES, Wall.NETWORK, Wall.NO_NEW_PRIVILEGES, Wall.LIMITS, Wall.KILLABLE})


class Walls(Struct, frozen=True):
    """The walls that a trial call found standing, and why others do not."""

    standing: frozenset[Wall] = frozenset()
    # What is known about a wall: its version, or what stopped it.
    details: dict[str, str] = {}

    @property
    def missing(self) -> frozenset[Wall]:
        """The walls that do not stand."""
        return frozenset(Wall) - self.standing

    def lacking(self, mode: Mode) -> frozenset[Wall]:
        """The walls without which code must not run in this mode."""
        wanted = {Mode.STRICT: frozenset(Wall), Mode.MINIMUM: MINIMUM, Mode.OFF: frozenset[Wall]()}[mode]
        return wanted - self.standing


class Limits(Struct, frozen=True):
    """How much of the machine calls may use."""

    wall_seconds: float = 60.0
    cpu_seconds: int = 60
    # Of each process, and of all processes of a call together as far as a look four times a second can tell.
    memory_bytes: int = 512 * 2**20
    # Processes and threads of a call.
    processes: int = 32
    open_files: int = 256
    # Of stdout and of stderr; what is beyond is dropped with a notice.
    output_bytes: int = 64 * 2**10
    # A call that writes this much is stopped: nobody will read it.
    output_most_bytes: int = 64 * 2**20
    value_bytes: int = 2**20
    disk_bytes: int = 64 * 2**20
    disk_files: int = 10_000
    # Calls that run at the same time; others wait.
    concurrency: int = 16


class Job(Struct, frozen=True):
    """One call of a function."""

    source: str
    function: str
    # A JSON object: the keyword arguments.
    arguments: str = "{}"
    # The whole environment of the call, apart from HOME, PATH and TMPDIR.
    env: dict[str, str] = {}
    # `name==version`, each.
    requirements: tuple[str, ...] = ()
    # None: the sandbox's limit. A larger one than the sandbox's is cut to it.
    wall_seconds: float | None = None


class Reason(StrEnum):
    """How a call ended."""

    OK = "ok"
    # The code raised an exception.
    RAISED = "raised"
    # Out of wall time or CPU time.
    TIMEOUT = "timeout"
    MEMORY = "memory"
    PROCESSES = "processes"
    DISK = "disk"
    # It wrote far too much to stdout or stderr.
    OUTPUT = "output"
    # The process ended without a result.
    KILLED = "killed"
    # What it returned is not JSON, or too large.
    BAD_VALUE = "bad_value"
    # It was not run: walls are missing, there is no such function, the requirements cannot be had.
    REFUSED = "refused"


class Result(Struct, frozen=True):
    """What became of a call. Everything in it except `reason` was said by untrusted code."""

    reason: Reason
    # JSON text; only when `reason` is OK.
    value: str | None = None
    # For people and models; empty when `reason` is OK.
    error: str = ""
    stdout: str = ""
    stderr: str = ""
    cpu_seconds: float = 0.0
