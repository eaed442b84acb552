"""Which walls stand: not what the kernel promises, but what a call that tries to get through them finds."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from services.sandbox.model import Job, Limits, Wall, Walls
from services.sandbox.zygote import ZygoteOptions

# Runs inside. Each answer is whether the wall held.
_TRIAL = """
import ctypes, os, platform, resource, socket

def held(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False

def no_capabilities():
    number = {"x86_64": 125, "aarch64": 90}.get(platform.machine())
    header, found = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    return number is not None and libc.syscall(number, header, found) == 0 and not any(found)

libc = ctypes.CDLL(None, use_errno=True)

def trial(outside, server, memory):
    with open("inside", "w") as file:
        file.write("its own folder works")
    return {
        "files": held(lambda: open(outside).close()) and held(lambda: open(outside, "a").close())
                 and held(lambda: os.listdir(os.path.dirname(outside))) and held(lambda: os.unlink(outside)),
        "network": held(lambda: socket.socket().close()),
        "syscalls": libc.prctl(21, 0, 0, 0, 0) == 2,
        "no_new_privileges": libc.prctl(39, 0, 0, 0, 0) == 1,
        "no_capabilities": no_capabilities(),
        "not_root": os.getuid() != 0,
        "limits": resource.getrlimit(resource.RLIMIT_AS)[1] <= memory,
        "killable": held(lambda: os.kill(server, 0)),
        "own_processes": os.getppid() == 1,
    }
"""


class Bait:
    """A file that the server can read and write, and the code inside must not."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bridle-trial-"))
        self._folder.chmod(0o755)
        self._file = self._folder / "file"
        self._file.write_text("for the server only")
        self._file.chmod(0o666)

    def job(self, limits: Limits) -> Job:
        """The trial."""
        arguments = {"outside": str(self._file), "server": os.getpid(), "memory": limits.memory_bytes}
        return Job(_TRIAL, "trial", json.dumps(arguments))

    def remove(self) -> None:
        """Remove the file."""
        self._file.unlink(missing_ok=True)
        self._folder.rmdir()


def judge(options: ZygoteOptions, said: dict[str, Any], found: dict[str, Any]) -> Walls:
    """The walls, from how the zygote was started, what it said, and what a trial found."""
    standing = {Wall(name) for name, held in found.items() if held}
    details: dict[str, str] = {}
    if options.namespaces:
        standing.add(Wall.OWN_ROOT)
        details[Wall.KILLABLE] = "with the process namespace"
    elif said["alone"]:
        details[Wall.KILLABLE] = "calls may not start processes"
    else:
        details[Wall.KILLABLE] = "by the Landlock domain"
    if said["landlock"]:
        standing.add(Wall.LANDLOCK)
        details[Wall.LANDLOCK] = f"version {said['landlock']}"
    if options.network:
        # Opened on purpose; it is not counted as missing.
        standing.add(Wall.NETWORK)
        details[Wall.NETWORK] = "open, because BRIDLE_TOOL_NETWORK=true"
    return Walls(frozenset(standing), details)
