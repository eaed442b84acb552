"""The zygote: a small, warm interpreter that forks a guard for each call and runs no code of others itself.

It is started with an empty environment and one descriptor, the control socket. The first message on it is its
configuration, which it answers with what it could set up; each later one is a call, with the call's descriptors. When
the socket ends, the server is gone: everything here ends, too.
"""

import asyncio
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from services.sandbox.inside import folders, guard, kernel, landlock, root, seccomp, tasks
from services.sandbox.inside.setup import Setup

_MESSAGE_BYTES = 65_536
DESCRIPTORS = 5
# Modules that tools commonly use: loaded once here instead of in each call.
_WARM = (
    "base64", "collections", "copy", "csv", "dataclasses", "datetime", "decimal", "enum", "functools", "hashlib",
    "html", "io", "itertools", "math", "operator", "pathlib", "random", "re", "statistics", "string", "subprocess",
    "tempfile", "textwrap", "time", "typing", "urllib.parse", "uuid",
)  # fmt: skip
_ZONE = kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS


def main(descriptor: int) -> None:
    """Serve calls until the server is gone."""
    control = socket.socket(fileno=descriptor)
    # The package that this file is in must not be on the path of the code that will run.
    sys.path.pop(0)
    config = json.loads(control.recv(_MESSAGE_BYTES))
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT))
    try:
        setup = prepare(config)
    except (OSError, KeyError) as error:
        control.send(json.dumps({"error": str(error)}).encode())
        return
    for module in _WARM:
        __import__(module)
    asyncio.new_event_loop().close()
    # What is there now stays: collecting it in a child would copy its pages.
    gc.collect()
    gc.freeze()
    control.send(json.dumps({"landlock": setup.landlock, "alone": setup.alone}).encode())
    Zygote(control, setup).serve()


def prepare(config: dict[str, Any]) -> Setup:
    """Raise the walls that all calls share."""
    setup = Setup(config["limits"], config["namespaces"], config["network"], config["work"])
    with contextlib.suppress(OSError):
        setup.proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    setup.read = root.system_paths(sys.base_prefix, sys.executable, setup.network)
    setup.landlock = landlock.version()
    visible = [*setup.read, *([config["packages"]] if os.path.isdir(config["packages"]) else [])]
    kernel.no_new_privileges()
    _change_place(setup, visible, config["user"])
    if setup.namespaces:
        # Otherwise there are folders to remove: the end of the control socket says the same a moment later.
        kernel.die_with_parent(signal.SIGKILL)
    kernel.adopt_orphans()
    setup.life, setup.alive = os.pipe()
    # Without a way to kill everything at one stroke, and not bound by RLIMIT_NPROC as root is, a call stays alone.
    setup.alone = not setup.namespaces and (not landlock.scopes_signals(setup.landlock) or os.getuid() == 0)
    if not setup.namespaces and not setup.alone:
        landlock.own_domain(setup.landlock)
    others = 0 if setup.namespaces else tasks.of_user(setup.proc, os.getuid())
    calls = 1 if setup.namespaces else setup.limits["concurrency"]
    # In a user namespace per call the guard is counted as well.
    setup.most_tasks = others + calls * (setup.limits["processes"] + 1)
    setup.filter = seccomp.program(
        kernel.MACHINE, network=setup.network, real_tree=not setup.namespaces, alone=None
    )  # fmt: skip
    return setup


def _change_place(setup: Setup, visible: list[str], user: int) -> None:
    """Into namespaces and a file tree of our own, and away from root."""
    zone = _ZONE | (0 if setup.network else kernel.CLONE_NEWNET)
    is_root = os.geteuid() == 0
    if not setup.namespaces:
        if is_root and _could_work_as(user, setup):
            os.chown(setup.work, user, user)
            _become(user)
    elif is_root:
        # As root we may show folders that the other user could not reach.
        kernel.unshare(kernel.CLONE_NEWNS)
        root.enter(visible)
        _become(user)
        _unshare(setup, zone)
    else:
        _unshare(setup, zone)
        root.enter(visible)
    setup.uid, setup.gid = os.getuid(), os.getgid()


def _unshare(setup: Setup, zone: int) -> None:
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(zone)
    guard.map_ids(setup.proc, uid, gid)


def _become(user: int) -> None:
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # Or the namespaces' files in /proc could not be written.
    kernel.readable_by_owner(True)


def _could_work_as(user: int, setup: Setup) -> bool:
    """Whether another user can read the interpreter, and reach the folder of the calls."""
    child = os.fork()
    if child == 0:
        try:
            _become(user)
            os.stat(setup.work)
            os.listdir(os.path.dirname(os.__file__))
        except OSError:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


class Zygote:
    """The loop."""

    def __init__(self, control: socket.socket, setup: Setup) -> None:
        self._control = control
        self._setup = setup
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        # Descriptor of each guard -> its process id.
        self._guards: dict[int, int] = {}
        self._count = 0

    def serve(self) -> None:
        """Until the server's end is closed."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor in self._guards:
                    self._bury(descriptor)
                elif not self._answer():
                    self._end()
                    return

    def _answer(self) -> bool:
        message, descriptors, _, _ = socket.recv_fds(self._control, _MESSAGE_BYTES, DESCRIPTORS)
        if not message:
            return False
        asked = json.loads(message)
        self._count += 1
        try:
            pid = guard.fork(self._setup)
        except OSError as error:
            os.write(descriptors[0], json.dumps({"status": -1, "verdict": "broken", "error": str(error)}).encode())
        else:
            if pid == 0:
                self._control.close()
                os.close(self._setup.alive)
                guard.run(self._setup, f"{self._count:08x}", asked["packages"], descriptors)
            self._hand_over(pid, descriptors[0])
        for each in descriptors:
            os.close(each)
        return True

    def _hand_over(self, pid: int, report: int) -> None:
        """Give the server a descriptor of the process: what it needs to kill it, and to see it gone."""
        # No other process can have this number, since this one has not yet waited for it.
        handle = os.pidfd_open(pid)
        self._guards[handle] = pid
        self._poll.register(handle, select.POLLIN)
        with socket.socket(fileno=os.dup(report)) as channel, contextlib.suppress(OSError):
            socket.send_fds(channel, [b"{}"], [handle])

    def _bury(self, handle: int) -> None:
        self._poll.unregister(handle)
        status = os.waitpid(self._guards.pop(handle), 0)[1]
        os.close(handle)
        if status and not self._setup.namespaces:
            self._sweep()

    def _sweep(self) -> None:
        """A guard that was killed leaves its processes to us. It should not happen; nothing may survive it anyway.

        We cannot tell whose they are, so all calls end here; nothing slower is safe from code that forks.
        """
        if self._setup.alone:
            for pid in tasks.children(self._setup.proc, "self"):
                os.kill(int(pid), signal.SIGKILL)
        else:
            guard.kill_all()
        guard.bury_all()
        for handle in self._guards:
            self._poll.unregister(handle)
            os.close(handle)
        self._guards.clear()
        for name in os.listdir(self._setup.work):
            folders.remove(f"{self._setup.work}/{name}")

    def _end(self) -> None:
        if not self._setup.namespaces:
            self._sweep()
            with contextlib.suppress(OSError):
                os.rmdir(self._setup.work)
            return
        for handle in self._guards:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
        guard.bury_all()
