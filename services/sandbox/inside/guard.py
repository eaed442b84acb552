"""The parent of one call's processes: it watches them, and nothing of them outlives it.

With namespaces it is process 1 of its own: the kernel kills the others when it ends. Without, it adopts all orphans and
is in a Landlock domain of its own, in which "signal everybody" means this call only. It never runs code of others, and
that code can neither signal nor trace it.
"""

import contextlib
import json
import os
import select
import signal
from typing import NoReturn

from services.sandbox.inside import folders, kernel, landlock, root, tasks, worker
from services.sandbox.inside.setup import Setup

_LOOK_SECONDS = 0.25
_WOKEN_BY = (signal.SIGCHLD, signal.SIGTERM)
FLAGS = kernel.CLONE_NEWUSER | kernel.CLONE_NEWPID | kernel.CLONE_NEWNS


def fork(setup: Setup) -> int:
    """The guard's process: its id, or 0 in it."""
    return kernel.clone(FLAGS) if setup.namespaces else os.fork()


def run(setup: Setup, name: str, packages: str, descriptors: list[int]) -> NoReturn:
    """Run one call to its end, say how it ended, and end."""
    report, *others = descriptors
    try:
        folder = _prepare(setup, name)
        child = os.fork()
        if child == 0:
            worker.run(setup, folder, packages, *others)
        for each in others:
            os.close(each)
        status, verdict = _watch(setup, child, folder)
        _end(setup, child, folder)
        usage = os.times()
        _say(report, {"status": status, "verdict": verdict, "cpu": usage.children_user + usage.children_system})
    except BaseException as error:
        _say(report, {"status": -1, "verdict": "broken", "error": repr(error)})
    finally:
        os._exit(0)


def _prepare(setup: Setup, name: str) -> str:
    if setup.namespaces:
        map_ids(setup.proc, setup.uid, setup.gid)
        root.private_tmp(setup.limits["disk_bytes"], setup.limits["disk_files"])
        kernel.die_with_parent(signal.SIGKILL)
        folder = root.TMP
    else:
        os.setsid()
        kernel.adopt_orphans()
        kernel.die_with_parent(signal.SIGTERM)
        if not setup.alone:
            landlock.own_domain(setup.landlock)
        folder = f"{setup.work}/{name}"
        os.mkdir(folder, 0o700)
    _leave_if_orphaned(setup.life)
    tasks.prefer_as_victim(setup.proc)
    return folder


def _leave_if_orphaned(life: int) -> None:
    """The zygote may have ended before we asked to be told."""
    look = select.poll()
    look.register(life, 0)
    if look.poll(0):
        os._exit(0)


def map_ids(proc: int, uid: int, gid: int) -> None:
    """In a new user namespace: our user keeps its number, and there are no others."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        file = os.open(f"self/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def _watch(setup: Setup, child: int, folder: str) -> tuple[int, str]:
    """Until the worker has ended, or must end: its wait status, and a word about why it was stopped."""
    while True:
        woken = signal.sigtimedwait(_WOKEN_BY, _LOOK_SECONDS)
        if woken is None:
            verdict = _exceeded(setup, folder)
            if verdict:
                return 0, verdict
        elif woken.si_signo == signal.SIGTERM:
            return 0, "stopped"
        else:
            ended = _reap(child)
            if ended is not None:
                return ended, ""


def _exceeded(setup: Setup, folder: str) -> str:
    pids = tasks.descendants(setup.proc)
    if len(pids) > setup.limits["processes"]:
        return "processes"
    if tasks.exceed(setup.proc, pids, setup.limits["memory_bytes"]):
        return "memory"
    if not setup.namespaces and not folders.within(folder, setup.limits["disk_bytes"], setup.limits["disk_files"]):
        return "disk"
    return ""


def _reap(child: int) -> int | None:
    """Bury whoever has ended; the worker's status if it is one of them."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _end(setup: Setup, child: int, folder: str) -> None:
    """Kill what is left and wait for it."""
    if setup.namespaces:
        return  # the kernel does, when this process ends
    if setup.alone:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    else:
        kill_all()
    bury_all()
    folders.remove(folder)


def kill_all() -> None:
    """Kill everybody in our Landlock domain but ourselves, at one stroke: nobody can fork out of it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(-1, signal.SIGKILL)


def bury_all() -> None:
    """Wait for all children, also for those that we adopt meanwhile."""
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def _say(report: int, content: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the server is gone
        os.write(report, json.dumps(content).encode())
