"""Runs the hostile list under a filter like that of a container runtime: no new namespaces. Needs no_new_privs."""

import errno
import os
import struct
import sys
from pathlib import Path

import pytest

from services.sandbox.inside import kernel

_UNSHARE, _CLONE, _CLONE3 = {"x86_64": (272, 56, 435), "aarch64": (97, 220, 435)}[os.uname().machine]
_NEW_NAMESPACES = 0x7E020000


def _filter() -> bytes:
    """unshare and clone with new namespaces: EPERM; clone3, whose flags a filter cannot see: ENOSYS."""
    allow, refuse, absent = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS
    steps = [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, _UNSHARE), (0x06, 0, 0, refuse),
        (0x15, 0, 1, _CLONE3), (0x06, 0, 0, absent),
        (0x15, 0, 3, _CLONE), (0x20, 0, 0, 16), (0x45, 0, 1, _NEW_NAMESPACES), (0x06, 0, 0, refuse),
        (0x06, 0, 0, allow),
    ]  # fmt: skip
    return b"".join(struct.pack("=HBBI", code, yes, no, value) for code, yes, no, value in steps)


if __name__ == "__main__":
    kernel.filter_syscalls(_filter())
    files = sorted(str(each) for each in Path(__file__).parent.glob("test_hostile_*.py"))
    files.append(str(Path(__file__).with_name("test_ends.py")))
    sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-k", "plain", *files]))
