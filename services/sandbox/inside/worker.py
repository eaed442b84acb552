"""The process that runs a job: it raises the walls around itself, then runs the code. It never returns."""

import contextlib
import json
import os
import resource
import signal
import struct
import sys
from typing import Any

from services.sandbox.inside import kernel, landlock, seccomp, user_code
from services.sandbox.inside.root import device_paths
from services.sandbox.inside.setup import Setup

_RESULT = 3
_FAILED = 70


def run(setup: Setup, folder: str, packages: str, job: int, result: int, stdout: int, stderr: int) -> None:
    """Run the job behind `job`, write its outcome to `result`."""
    try:
        asked = _read_job(job)
        _settle_descriptors(result, stdout, stderr)
        os.setsid()
        # Whatever the code does, the server and the guard come first.
        os.nice(5)
        os.chdir(folder)
        _raise_walls(setup, folder, packages)
        _settle_interpreter(asked["env"], folder, packages)
        _send(user_code.outcome(asked, setup.limits["value_bytes"]))
    except BaseException as error:
        with contextlib.suppress(BaseException):
            os.write(2, f"the sandbox could not finish the call: {error!r}\n".encode())
        os._exit(_FAILED)
    os._exit(0)


def _read_job(job: int) -> Any:
    size = os.fstat(job).st_size
    return json.loads(os.pread(job, size, 0))


def _settle_descriptors(result: int, stdout: int, stderr: int) -> None:
    """0 is nothing, 1 and 2 are captured, 3 is for the result. All others are closed."""
    nothing = os.open("/dev/null", os.O_RDONLY)
    # High first, so that no copy lands on one that is still to be copied.
    high = [os.dup(each) for each in (nothing, stdout, stderr, result)]
    for target, source in enumerate(high):
        os.dup2(source, target, inheritable=target < _RESULT)
    os.closerange(_RESULT + 1, os.sysconf("SC_OPEN_MAX"))


def _raise_walls(setup: Setup, folder: str, packages: str) -> None:
    _limit(setup)
    kernel.no_new_privileges()
    if setup.landlock:
        read, write = _paths(setup, folder, packages)
        landlock.restrict(setup.landlock, read, write, setup.network)
    with contextlib.suppress(KeyError):  # a machine whose system calls we do not know: the walls' trial will tell
        kernel.drop_capabilities()
    kernel.die_with_parent(signal.SIGKILL)
    alone = os.getpid() if setup.alone else None
    program = setup.filter if alone is None else seccomp.program(
        kernel.MACHINE, network=setup.network, real_tree=not setup.namespaces, alone=alone
    )  # fmt: skip
    if program:
        kernel.filter_syscalls(program)


def _paths(setup: Setup, folder: str, packages: str) -> tuple[list[str], list[str]]:
    """What Landlock lets through: to read, and to write as well."""
    if setup.namespaces:
        # The tree holds nothing else. A rule costs more than it seems: it is made in every call.
        return ["/"], [folder, "/dev"]
    return [*setup.read, *([packages] if packages else [])], [folder, *device_paths()]


def _limit(setup: Setup) -> None:
    limits = setup.limits
    cpu = max(1, int(limits["cpu_seconds"]))
    wanted = {
        # The soft limit sends SIGXCPU, which code may ignore; the hard one kills.
        resource.RLIMIT_CPU: (cpu, cpu + 1),
        resource.RLIMIT_AS: (limits["memory_bytes"],) * 2,
        resource.RLIMIT_FSIZE: (limits["disk_bytes"],) * 2,
        resource.RLIMIT_NOFILE: (limits["open_files"],) * 2,
        resource.RLIMIT_NPROC: (setup.most_tasks,) * 2,
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_MEMLOCK: (0, 0),
        resource.RLIMIT_MSGQUEUE: (0, 0),
    }
    for kind, (soft, hard) in wanted.items():
        most = resource.getrlimit(kind)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))


def _settle_interpreter(env: dict[str, str], folder: str, packages: str) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ.clear()
    os.environ.update({"HOME": folder, "TMPDIR": folder, "PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"})
    os.environ.update(env)
    if packages:
        sys.path.append(packages)
    for name in [each for each in sys.modules if each.partition(".")[0] == "services"]:
        del sys.modules[name]  # ours, not theirs to import
    # What was printed before a kill must not be lost in a buffer.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _send(outcome: dict[str, str]) -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    payload = json.dumps(outcome, ensure_ascii=False).encode(errors="replace")
    frame = memoryview(struct.pack(">I", len(payload)) + payload)
    while frame:
        frame = frame[os.write(_RESULT, frame) :]
