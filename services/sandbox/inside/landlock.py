"""Landlock: what of the file tree a process can reach, and whom it can signal. Needs no privilege.

https://docs.kernel.org/userspace-api/landlock.html
"""

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from services.sandbox.inside import kernel

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
# Every right that a version of Landlock knows: 13 of the first, then REFER, TRUNCATE and IOCTL_DEV.
_KNOWN_FILES = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
_BIND_AND_CONNECT_TCP = 3
_SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS = 3

_READ = _EXECUTE | _READ_FILE | _READ_DIR
# What may be granted on a file; the kernel refuses rights of folders there.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV


def version() -> int:
    """The kernel's Landlock, or 0."""
    try:
        return kernel.syscall("landlock_create_ruleset", _CREATE_RULESET, None, 0, _VERSION)
    except OSError:
        return 0


def scopes_signals(abi: int) -> bool:
    """Whether a process can be kept from signalling those outside of its domain."""
    return abi >= 6


def restrict(abi: int, read: Iterable[str], write: Iterable[str], network: bool) -> None:
    """Leave this process these paths and nothing else, for good. Paths that are not there are left out."""
    files = _KNOWN_FILES[min(abi, 5)]
    tcp = _BIND_AND_CONNECT_TCP if abi >= 4 and not network else 0
    ruleset = _ruleset(files, tcp, _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS if scopes_signals(abi) else 0, abi)
    try:
        for path in read:
            _allow(ruleset, path, _READ & files)
        for path in write:
            _allow(ruleset, path, files & ~_EXECUTE & ~_IOCTL_DEV)
        kernel.syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def own_domain(abi: int) -> None:
    """A domain that forbids nothing but signals to the outside: `kill(-1)` then means "everything of mine"."""
    # A domain that does not say otherwise forbids to move files between folders.
    ruleset = _ruleset(_REFER, 0, _SCOPE_ABSTRACT_SOCKETS_AND_SIGNALS, abi)
    try:
        _allow(ruleset, "/", _REFER)
        kernel.syscall("landlock_restrict_self", _RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _ruleset(files: int, tcp: int, scope: int, abi: int) -> int:
    # An older kernel knows a shorter struct.
    size = 8 if abi < 4 else 16 if abi < 6 else 24
    attributes = ctypes.create_string_buffer(struct.pack("=QQQ", files, tcp, scope), 24)
    return kernel.syscall("landlock_create_ruleset", _CREATE_RULESET, attributes, size, 0)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        beneath = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(beneath).st_mode):
            rights &= _OF_FILES
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, beneath), 12)
        kernel.syscall("landlock_add_rule", _ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(beneath)
