"""What a call may have left behind: processes, files, descriptors."""

import os
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """All processes below one, zombies too."""
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            below.setdefault(int(after_name[1]), []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        children = below.get(waiting.pop(), [])
        found.update(children)
        waiting += children
    return found


def alive(pids: set[int]) -> set[int]:
    """Those that still run."""
    return {pid for pid in pids if Path(f"/proc/{pid}").exists()}


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))


def folders(below: Path) -> list[str]:
    """The sandboxes' folders below that for temporary files."""
    return [str(folder) for folder in below.glob("bridle-sandbox-*")]


def running(pids: set[int]) -> set[int]:
    """Those that are not dead; one that only waits to be buried is."""
    return {pid for pid in pids if _state(pid) not in "ZX"}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"
