"""What a process has cost so far, and the machine around it, as the kernel counts it."""

import os
import resource
import time
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds(pid: int) -> float:
    """User and system time of all its threads; counted in steps of 10 ms."""
    # The name of the program stands in parentheses and may hold spaces.
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) / _TICK


def resident_mb(pid: int) -> float:
    """Memory that it holds now."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20


class Foreign:
    """How much of the machine others use while we measure. Ask when everything that we started has ended."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._busy = _machine_seconds()
        self._ours = _our_seconds()

    def cores(self) -> float:
        """Cores that were busy with other things, on average, since the start."""
        foreign = (_machine_seconds() - self._busy) - (_our_seconds() - self._ours)
        return max(0.0, foreign / (time.monotonic() - self._began))


def _machine_seconds() -> float:
    total = Path("/proc/stat").read_text().partition("\n")[0]
    user, nice, system, _idle, _iowait, *rest = map(int, total.split()[1:9])
    return (user + nice + system + sum(rest)) / _TICK


def _our_seconds() -> float:
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )
