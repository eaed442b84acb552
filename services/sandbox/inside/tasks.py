"""Looking at processes through the machine's /proc, which may be missing."""

import contextlib
import os

_PAGE = os.sysconf("SC_PAGE_SIZE")
_MOST = 4096


def _read(proc: int, path: str) -> str:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
    try:
        return os.read(file, 65536).decode()
    finally:
        os.close(file)


def children(proc: int, pid: str) -> list[str]:
    """The direct children of a process's threads, by the numbers of that /proc."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(folder := os.open(f"{pid}/task", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)):
            with contextlib.suppress(OSError):
                found += _read(proc, f"{pid}/task/{task}/children").split()
        os.close(folder)
    return found


def descendants(proc: int) -> list[str]:
    """All processes below this one; none if that cannot be known."""
    found: list[str] = []
    waiting = children(proc, "self") if proc >= 0 else []
    while waiting and len(found) < _MOST:
        found.append(waiting.pop())
        waiting += children(proc, found[-1])
    return found


def exceed(proc: int, pids: list[str], most: int) -> bool:
    """Whether these processes together hold more memory than that."""
    # The first count is quick, and counts what a fork shares with its parent twice.
    return sum(_private(proc, pid) for pid in pids) > most and sum(_proportional(proc, pid) for pid in pids) > most


def _private(proc: int, pid: str) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = _read(proc, f"{pid}/statm").split()
        return max(0, int(fields[1]) - int(fields[2])) * _PAGE
    return 0


def _proportional(proc: int, pid: str) -> int:
    """A page that is shared by two counts half for each."""
    found = 0
    try:
        for line in _read(proc, f"{pid}/smaps_rollup").splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                found += int(line.split()[1]) * 1024
    except (OSError, ValueError):
        return _private(proc, pid)
    return found


def of_user(proc: int, uid: int) -> int:
    """How many processes and threads a user has; RLIMIT_NPROC counts them all."""
    count = 0
    if proc < 0:
        return count
    for name in os.listdir(proc):
        if name.isdigit():
            with contextlib.suppress(OSError):
                if os.stat(f"{name}", dir_fd=proc).st_uid == uid:
                    folder = os.open(f"{name}/task", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc)
                    try:
                        count += len(os.listdir(folder))
                    finally:
                        os.close(folder)
    return count


def prefer_as_victim(proc: int) -> None:
    """When the machine runs out of memory, let the kernel take this call before the server."""
    with contextlib.suppress(OSError):
        file = os.open("self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            os.write(file, b"1000")
        finally:
            os.close(file)
