"""System calls that Python does not offer, by ctypes. An OSError says which one failed."""

import ctypes
import os
import platform
import signal

# <linux/sched.h>
CLONE_NEWNS = 0x00020000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

# <sys/mount.h>
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
MNT_DETACH = 2

# <linux/prctl.h>
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP = 1, 4, 22
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_SECCOMP_MODE_FILTER = 2

MACHINE = platform.machine()
# Numbers of calls that glibc has no function for; those above 423 are the same on every machine.
_NUMBERS = {
    "x86_64": {"clone": 56, "capset": 126, "pivot_root": 155},
    "aarch64": {"clone": 220, "capset": 91, "pivot_root": 41},
}.get(MACHINE, {})

_libc = ctypes.CDLL(None, use_errno=True)
# Holds the interpreter's lock while it calls: the child of a bare clone must not have to take it.
_locked_libc = ctypes.PyDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(what: str, number: int, *arguments: object) -> int:
    """A bare system call; whole numbers are passed as long."""
    longs = (ctypes.c_long(each) if isinstance(each, int) else each for each in arguments)
    return _checked(_libc.syscall(ctypes.c_long(number), *longs), what)


def _prctl(what: str, option: int, *arguments: object) -> int:
    longs = [ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments]
    longs += [ctypes.c_ulong(0)] * (4 - len(longs))
    return _checked(_libc.prctl(option, *longs), what)


def clone(flags: int) -> int:
    """Fork into new namespaces: the child's id, or 0 in the child.

    Python and glibc do not know of this fork. The caller has one thread, and the child only forks once more, properly.
    """
    number = _NUMBERS["clone"]
    zero = ctypes.c_long(0)
    flags_and_signal = ctypes.c_long(flags | signal.SIGCHLD)
    made: int = _locked_libc.syscall(ctypes.c_long(number), flags_and_signal, zero, zero, zero, zero)
    return _checked(made, "clone")


def unshare(flags: int) -> None:
    """Move this process into new namespaces."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """mount(2)."""
    done = _libc.mount(
        source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), options.encode() or None
    )
    _checked(done, f"mount {target}")


def pivot_root(new_root: str) -> None:
    """Make a mounted folder the root, and forget the old one."""
    os.chdir(new_root)
    syscall("pivot_root", _NUMBERS["pivot_root"], b".", b".")
    # Both roots are now stacked at the same place, the old one on top.
    _checked(_libc.umount2(b".", MNT_DETACH), "umount the old root")
    os.chdir("/")


def die_with_parent(number: int) -> None:
    """Get this signal when the parent dies. A change of user or capabilities takes it back."""
    _prctl("PR_SET_PDEATHSIG", _PR_SET_PDEATHSIG, int(number))


def adopt_orphans() -> None:
    """Become the parent of all descendants whose own parent ends."""
    _prctl("PR_SET_CHILD_SUBREAPER", _PR_SET_CHILD_SUBREAPER, 1)


def no_new_privileges() -> None:
    """From now on no program that is started can gain anything, by setuid or otherwise."""
    _prctl("PR_SET_NO_NEW_PRIVS", _PR_SET_NO_NEW_PRIVS, 1)


def readable_by_owner(value: bool) -> None:
    """Whether processes of the same user may look into this one (it is off after a change of user)."""
    _prctl("PR_SET_DUMPABLE", _PR_SET_DUMPABLE, int(value))


def drop_capabilities() -> None:
    """Give up every capability; with no_new_privileges there is no way to get one back."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    syscall("capset", _NUMBERS["capset"], ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)()))


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def filter_syscalls(program: bytes) -> None:
    """Install a seccomp filter (see seccomp.py); needs no_new_privileges."""
    sent = _Program(len(program) // 8, program)
    _prctl("PR_SET_SECCOMP", _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(sent))
