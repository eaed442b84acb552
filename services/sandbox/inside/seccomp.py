"""A seccomp filter: everything is allowed but what reaches beyond the call. Pure: numbers in, a BPF program out.

A list of what is allowed would break on every new C library. What is refused here is what a function has no business
with and what the other walls do not cover.
"""

import errno
import struct

# <linux/seccomp.h>, <linux/audit.h>, <linux/bpf_common.h>
_ALLOW, _ERRNO, _KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32 = 0x40000000

_AF_INET, _AF_INET6, _AF_NETLINK = 2, 10, 16
# CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_NEW_NAMESPACES = 0x7E020000
_CLONE_THREAD = 0x00010000
_F_SETOWN, _F_SETSIG, _F_SETOWN_EX = 8, 10, 15

# name: (number on x86_64, number on aarch64); -1 where a machine does not have it.
_REFUSED = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239),
    # the file tree
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "inotify_init": (253, -1), "inotify_init1": (294, 26), "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "acct": (163, 89), "swapon": (167, 224), "swapoff": (168, 225),
    # namespaces, modules, clocks: the kernel's own business
    "unshare": (272, 97), "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "syslog": (103, 116),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58), "personality": (135, 92),
    "iopl": (172, -1), "ioperm": (173, -1), "modify_ldt": (154, -1), "lookup_dcookie": (212, 18),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "userfaultfd": (323, 282),
    # a second door to most system calls, which a filter does not see
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # memory that no limit counts, and that outlives its process
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "semget": (64, 190), "msgget": (68, 186), "mq_open": (240, 180), "vmsplice": (278, 75),
}  # fmt: skip
# Landlock watches who opens a file, not who changes its mode or owner. Only needed where the call sees the real tree.
_REFUSED_ON_THE_REAL_TREE = {
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "fchown": (93, 55), "lchown": (94, -1), "fchownat": (260, 54),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    # Landlock knows it since its third version.
    "truncate": (76, 45),
}  # fmt: skip
_FORK = {"fork": (57, -1), "vfork": (58, -1)}
_CLONE, _CLONE3, _SOCKET, _PRLIMIT, _FCNTL = (56, 220), (435, 435), (41, 198), (302, 261), (72, 25)
# (call, which argument names a process): 0 is the caller itself.
_ON_A_PROCESS = ((_PRLIMIT, 0), ((203, 122), 0), ((144, 119), 0), ((142, 118), 0), ((314, 274), 0))
_KILLS = ((62, 129), (200, 130), (234, 131), (129, 138), (297, 240))
_PIDFD_SEND_SIGNAL = (424, 424)


def program(machine: str, *, network: bool, real_tree: bool, alone: int | None) -> bytes:
    """The filter, or nothing for a machine whose system calls we do not know.

    `alone` is the process id of a call that may neither start processes nor signal any but itself.
    """
    if machine not in _ARCHITECTURES:
        return b""
    column = list(_ARCHITECTURES).index(machine)
    refused = _REFUSED | (_REFUSED_ON_THE_REAL_TREE if real_tree else {}) | ({} if alone is None else _FORK)
    body = b"".join(_when(numbers[column], _refuse()) for numbers in refused.values())
    # glibc falls back to clone, whose flags a filter can see.
    body += _when(_CLONE3[column], _refuse(errno.ENOSYS))
    body += _when(_CLONE[column], _unless_bit(0, _CLONE_THREAD) if alone else _if_bit(0, _NEW_NAMESPACES))
    body += _when(_SOCKET[column], _only(0, (_AF_INET, _AF_INET6, _AF_NETLINK) if network else ()))
    body += _when(_FCNTL[column], _except(1, (_F_SETOWN, _F_SETSIG, _F_SETOWN_EX)))
    body += b"".join(_when(numbers[column], _only(argument, (0,))) for numbers, argument in _ON_A_PROCESS)
    if alone is not None:
        body += b"".join(_when(numbers[column], _only(0, (0, alone))) for numbers in _KILLS)
        body += _when(_PIDFD_SEND_SIGNAL[column], _refuse())
    head = _step(_LOAD, _ARCHITECTURE) + _step(_EQUAL, _ARCHITECTURES[machine], 1, 0) + _step(_RETURN, _KILL_PROCESS)
    head += _step(_LOAD, _NUMBER)
    if machine == "x86_64":
        # The x32 ABI has the same architecture and other numbers.
        head += _step(_AT_LEAST, _X32, 0, 1) + _refuse(errno.ENOSYS)
    return head + body + _step(_RETURN, _ALLOW)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(number: int = errno.EPERM) -> bytes:
    return _step(_RETURN, _ERRNO | number)


def _when(number: int, then: bytes) -> bytes:
    """`then` must end in a return."""
    return b"" if number < 0 else _step(_EQUAL, number, 0, len(then) // 8) + then


def _argument(index: int) -> bytes:
    # The lower half: ids, flags and families are ints, and the kernel ignores the rest of the register.
    return _step(_LOAD, _ARGUMENTS + 8 * index)


def _only(index: int, values: tuple[int, ...]) -> bytes:
    tests = b"".join(_step(_EQUAL, value, 0, 1) + _step(_RETURN, _ALLOW) for value in values)
    return _argument(index) + tests + _refuse()


def _except(index: int, values: tuple[int, ...]) -> bytes:
    tests = b"".join(_step(_EQUAL, value, 0, 1) + _refuse() for value in values)
    return _argument(index) + tests + _step(_RETURN, _ALLOW)


def _if_bit(index: int, mask: int) -> bytes:
    return _argument(index) + _step(_ANY_BIT, mask, 0, 1) + _refuse() + _step(_RETURN, _ALLOW)


def _unless_bit(index: int, mask: int) -> bytes:
    return _argument(index) + _step(_ANY_BIT, mask, 1, 0) + _refuse() + _step(_RETURN, _ALLOW)
