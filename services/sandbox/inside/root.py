"""A file tree of its own: the interpreter and its libraries, read-only, a few devices, and an empty /tmp."""

import os

from services.sandbox.inside import kernel

_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
TMP = "/tmp"  # noqa: S108 - of the new tree, where nobody else is
# Where the tree is built: a folder that every Linux has and that holds none of the paths to show.
_MOUNT_POINT = "/sys"
# What a mount of others forbids stays forbidden: a user namespace may not take it back.
_KEPT = ((os.ST_NOSUID, kernel.MS_NOSUID), (os.ST_NODEV, kernel.MS_NODEV), (os.ST_NOEXEC, kernel.MS_NOEXEC))
_ACCESS_TIMES = ((1024, 1024), (2048, 2048), (4096, 1 << 21))


def system_paths(base_prefix: str, executable: str, network: bool) -> list[str]:
    """What a Python function needs to read, and nothing that is private to the server."""
    paths = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo"]
    if base_prefix not in ("/", "/usr", "/usr/local"):
        paths.append(f"{base_prefix}/lib")
    paths += [os.path.realpath(executable), "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types"]
    if network:
        paths += ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/services"]
        paths += ["/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/usr/share/ca-certificates", "/etc/pki"]
    return [path for path in dict.fromkeys(paths) if os.path.exists(path)]


def device_paths() -> tuple[str, ...]:
    """The devices that a call may use."""
    return _DEVICES


def enter(read: list[str]) -> None:
    """Make a new tree with these paths the root of this process's mount namespace."""
    work = _MOUNT_POINT
    # Nothing that happens here may spread to the rest of the machine.
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", work, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m,mode=755")
    for path in read:
        _show(work, path)
    for path in _DEVICES:
        _bind(path, work + path)
    os.mkdir(work + TMP, 0o755)
    kernel.pivot_root(work)
    kernel.mount("none", "/", "", kernel.MS_REMOUNT | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV)


def private_tmp(size: int, files: int) -> None:
    """An empty /tmp of this size that vanishes with the mount namespace."""
    options = f"size={size},nr_inodes={files},mode=700"
    kernel.mount("tmpfs", TMP, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, options)


def _show(work: str, path: str) -> None:
    if os.path.lexists(work + path):
        return  # part of a folder that is there already
    if os.path.islink(path):
        # /lib is a link to usr/lib on most systems; its target is in the list as well.
        os.makedirs(os.path.dirname(work + path), exist_ok=True)
        target = os.readlink(path)
        os.symlink(target, work + path)
        real = os.path.realpath(path)
        if not os.path.exists(work + real):
            _show(work, real)
        return
    _bind(path, work + path)
    # A mount of a folder does not bring the flags along; a second call sets them.
    _read_only(work + path)


def _bind(path: str, target: str) -> None:
    os.makedirs(os.path.dirname(target), exist_ok=True)
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
    kernel.mount(path, target, "", kernel.MS_BIND)


def _read_only(target: str) -> None:
    had = os.statvfs(target).f_flag
    flags = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    for seen, kept in (*_KEPT, *_ACCESS_TIMES):
        flags |= kept if had & seen else 0
    kernel.mount("none", target, "", kernel.MS_BIND | kernel.MS_REMOUNT | flags)
