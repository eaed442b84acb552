"""What the zygote has found out and every call of it shares."""

from dataclasses import dataclass, field


@dataclass
class Setup:
    """Made once, before the first call."""

    limits: dict[str, int]
    # Own user, mount, process, network, IPC and host name namespaces; otherwise the machine's own.
    namespaces: bool
    network: bool
    # The parent of the calls' folders, if there are no namespaces.
    work: str
    # Version of Landlock, 0: none.
    landlock: int = 0
    # What calls may read.
    read: list[str] = field(default_factory=list)
    filter: bytes = b""
    # Calls may not start processes: nothing here could kill them for certain.
    alone: bool = False
    # RLIMIT_NPROC, which counts all processes of a user in a namespace.
    most_tasks: int = 0
    # /proc of the machine, to look at processes; -1 if there is none.
    proc: int = -1
    # The end of a pipe that hangs up when the zygote ends.
    life: int = -1
    # The other end, which only the zygote keeps.
    alive: int = -1
    # The user of all calls.
    uid: int = -1
    gid: int = -1
