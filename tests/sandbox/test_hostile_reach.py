"""Hostile code that reaches out: for files, processes, sockets, secrets. `box` checks that nothing is left."""

import asyncio
import os
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from services.sandbox.model import Reason, Wall
from tests.helpers.wait import eventually
from tests.sandbox.leftovers import descendants
from tests.sandbox.rig import SLEEP, Box, cancelled


async def test_the_servers_environment_is_not_there(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "the server's")
    seen = await box.value("import os\ndef f(): return dict(os.environ)")
    assert seen["AGENT_SECRET"] == "for this agent"
    assert set(seen) == {"AGENT_SECRET", "HOME", "LANG", "PATH", "TMPDIR"}


@pytest.mark.parametrize("name", ["environ", "cmdline", "maps", "fd", "mem", "root/etc/passwd", "cwd"])
async def test_proc_of_the_server_is_closed(box: Box, name: str) -> None:
    result = await box.run(
        """
        import os
        def f(path):
            return os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(10).hex()
        """,
        path=f"/proc/{os.getpid()}/{name}",
    )
    assert result.reason is Reason.RAISED, result
    assert "PermissionError" in result.error or "FileNotFoundError" in result.error


async def test_proc_of_its_parents_is_closed(box: Box) -> None:
    result = await box.run("import os\ndef f(): return open(f'/proc/{os.getppid()}/environ').read()")
    assert result.reason is Reason.RAISED, result


async def test_the_database_is_out_of_reach(box: Box, tmp_path: Path) -> None:
    _open_to_all(tmp_path)
    file = tmp_path / "bridle.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("create table secrets (name text)")
    file.chmod(0o666)
    tries = await box.value(
        """
        import os, shutil
        def f(path):
            def attempt(action):
                try:
                    action()
                except OSError as error:
                    return type(error).__name__
                return "done"
            return {
                "read": attempt(lambda: open(path, "rb").read()),
                "write": attempt(lambda: open(path, "r+b").write(b"x")),
                "truncate": attempt(lambda: os.truncate(path, 0)),
                "remove": attempt(lambda: os.unlink(path)),
                "rename": attempt(lambda: os.rename(path, path + "2")),
                "move": attempt(lambda: os.rename(path, "mine")),
                "link": attempt(lambda: os.link(path, "mine")),
                "mode": attempt(lambda: os.chmod(path, 0)),
                "owner": attempt(lambda: os.chown(path, os.getuid(), os.getgid())),
                "attribute": attempt(lambda: os.setxattr(path, "user.a", b"b")),
                "list": attempt(lambda: os.listdir(os.path.dirname(path))),
                "make": attempt(lambda: open(path + "3", "w")),
                "folder": attempt(lambda: os.mkdir(path + "4")),
                "follow": attempt(lambda: (os.symlink(path, "mine"), open("mine").read())),
            }
        """,
        path=str(file),
    )
    assert "done" not in tries.values(), tries
    assert os.listdir(tmp_path) == ["bridle.db"]
    assert file.stat().st_mode & 0o777 == 0o666


async def test_sockets_of_the_server_are_out_of_reach(box: Box, tmp_path: Path) -> None:
    _open_to_all(tmp_path)
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as unix, socket.socket() as tcp, socket.socket(socket.AF_UNIX) as abstract:
        unix.bind(path)
        unix.listen()
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
        abstract.bind("\0bridle-test")
        abstract.listen()
        found = await box.value(
            """
            import socket
            def f(path, port):
                out = []
                for family, address in ((socket.AF_UNIX, path), (socket.AF_INET, ("127.0.0.1", port)),
                                        (socket.AF_UNIX, "\\0bridle-test")):
                    try:
                        socket.socket(family).connect(address)
                        out.append("connected")
                    except OSError as error:
                        out.append(type(error).__name__)
                return out
            """,
            path=path,
            port=tcp.getsockname()[1],
        )
    assert found == ["PermissionError"] * 3


async def test_no_network(box: Box) -> None:
    found = await box.value("""
        import socket, urllib.request
        def f():
            out = []
            for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET, socket.AF_UNIX, 40):
                for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
                    try:
                        socket.socket(family, kind)
                        out.append((family, kind))
                    except OSError:
                        pass
            try:
                urllib.request.urlopen("http://127.0.0.1:1/")
            except OSError as error:
                out.append(str(error))
            return out
    """)
    assert found == ["<urlopen error [Errno 1] Operation not permitted>"]


async def test_it_cannot_signal_anybody_else(box: Box) -> None:
    mine = os.getpid()
    found = await box.value(
        """
        import os, signal
        def f(server):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            out = []
            for target in (server, os.getppid(), -server, -1):
                try:
                    os.kill(target, signal.SIGTERM)
                    out.append("done")
                except OSError as error:
                    out.append(type(error).__name__)
            return out
        """,
        server=mine,
    )
    assert found[0] in ("PermissionError", "ProcessLookupError")
    # With a process namespace the parent is process 1 there, which heeds no signal from inside.
    if Wall.OWN_PROCESSES not in box.sandbox.walls().standing:
        assert found[1] == "PermissionError"


async def test_killing_its_parent_does_nothing(box: Box) -> None:
    result = await box.run("import os, signal\ndef f():\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 'alive'")
    assert result.value == '"alive"' or "PermissionError" in result.error, result


async def test_killing_everybody_kills_at_most_itself(box: Box) -> None:
    sleeping = asyncio.ensure_future(box.run(SLEEP))
    result = await box.run("import os, signal\ndef f():\n    os.kill(-1, signal.SIGKILL)\n    return 'alive'")
    assert result.reason in (Reason.OK, Reason.RAISED, Reason.KILLED)
    assert not sleeping.done()
    await cancelled(sleeping)


@pytest.mark.parametrize(
    "path",
    ["/outside", "/etc/outside", "/usr/lib/outside", "/dev/shm/outside", "/var/tmp/outside", "../outside"],  # noqa: S108
)
async def test_it_writes_only_into_its_folder(box: Box, path: str) -> None:
    result = await box.run("def f(path): open(path, 'w').write('x')", path=path)
    assert result.reason is Reason.RAISED
    assert "Error" in result.error


async def test_it_cannot_change_the_interpreter(box: Box) -> None:
    found = await box.value("""
        import os, json
        def f():
            out = []
            for action in (lambda: open(json.__file__, "a"), lambda: os.unlink(json.__file__),
                           lambda: os.chmod(json.__file__, 0o777), lambda: os.truncate(json.__file__, 0),
                           lambda: open(os.path.join(os.path.dirname(json.__file__), "new.py"), "w")):
                try:
                    action()
                    out.append("done")
                except OSError:
                    out.append("refused")
            return out
    """)
    assert found == ["refused"] * 5


async def test_its_own_folder_works(box: Box) -> None:
    found = await box.value("""
        import os, shutil, tempfile
        def f():
            os.makedirs("a/b")
            with open("a/b/c", "w") as file:
                file.write("text")
            os.rename("a/b/c", "a/c")
            os.symlink("a/c", "link")
            with tempfile.TemporaryDirectory() as made:
                shutil.copyfile("link", os.path.join(made, "copy"))
            same = os.getcwd() == os.environ["HOME"] == tempfile.gettempdir()
            return [same, open("link").read(), sorted(os.listdir())]
    """)
    assert found == [True, "text", ["a", "link"]]


async def test_folders_of_other_calls_are_closed(box: Box) -> None:
    writing = asyncio.ensure_future(
        box.run("import time\ndef f():\n    open('secret', 'w').write('x')\n    print('x')\n    time.sleep(1000)")
    )
    found = await box.value("""
        import os, time
        def f():
            out = []
            for _ in range(20):
                time.sleep(0.01)
                above = os.path.dirname(os.getcwd())
                try:
                    out += [name for name in os.listdir(above) if os.path.join(above, name) != os.getcwd()]
                except PermissionError:
                    pass
                for number in range(64):
                    if f"{above}/{number:08x}" != os.getcwd() and os.path.exists(f"{above}/{number:08x}/secret"):
                        try:
                            open(f"{above}/{number:08x}/secret").read()
                            out.append("read")
                        except PermissionError:
                            pass
            # With a tree of its own the folder above is the root of that.
            return [each for each in out if each == "read" or each.startswith("0000")]
    """)
    assert found == []
    await cancelled(writing)


async def test_modules_of_the_server_are_not_importable(box: Box) -> None:
    for name in ("msgspec", "common.settings", "services.app", "grpc"):
        result = await box.run(f"import {name}\ndef f(): return 1")
        assert "ModuleNotFoundError" in result.error, result


async def test_it_has_no_descriptors_of_others(box: Box) -> None:
    found = await box.value("""
        import os
        def f():
            out = []
            for number in range(1024):
                try:
                    os.fstat(number)
                    out.append(number)
                except OSError:
                    pass
            return out
    """)
    assert found == [0, 1, 2, 3]


async def test_raising_its_own_limits(box: Box) -> None:
    result = await box.run("""
        import resource
        def f(): resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))
    """)
    assert result.reason is Reason.RAISED


async def test_lowering_limits_of_the_server(box: Box) -> None:
    result = await box.run(
        "import resource\ndef f(server): resource.prlimit(server, resource.RLIMIT_NOFILE, (0, 0))", server=os.getpid()
    )
    assert result.reason is Reason.RAISED
    assert "PermissionError" in result.error


@pytest.mark.parametrize(
    "number",
    {
        "ptrace": 101, "mount": 165, "unshare": 272, "setns": 308, "bpf": 321, "keyctl": 250, "kexec_load": 246,
        "perf_event_open": 298, "io_uring_setup": 425, "process_vm_readv": 310, "memfd_create": 319, "chroot": 161,
        "userfaultfd": 323, "open_by_handle_at": 304, "shmget": 29, "add_key": 248, "reboot": 169, "pidfd_getfd": 438,
    }.items(),
    ids=lambda pair: pair[0],
)  # fmt: skip
async def test_system_calls_that_are_refused(box: Box, number: tuple[str, int]) -> None:
    box.need(Wall.SYSCALLS)
    if os.uname().machine != "x86_64":
        pytest.skip("numbers of x86_64")
    found = await box.value(
        """
        import ctypes
        def f(number):
            libc = ctypes.CDLL(None, use_errno=True)
            return [libc.syscall(number, 0, 0, 0, 0, 0), ctypes.get_errno()]
        """,
        number=number[1],
    )
    assert found == [-1, 1]


async def test_the_other_system_call_tables_are_closed(box: Box) -> None:
    """x32 numbers would pass a filter that only compares."""
    box.need(Wall.SYSCALLS)
    if os.uname().machine != "x86_64":
        pytest.skip("x86_64 has such tables")
    found = await box.value("""
        import ctypes
        def f():
            libc = ctypes.CDLL(None, use_errno=True)
            return [libc.syscall(0x40000000 + 41, 2, 1, 0), ctypes.get_errno()]
    """)
    assert found == [-1, 38]


async def test_tracing_a_sibling(box: Box) -> None:
    before = descendants(os.getpid())
    sibling = asyncio.ensure_future(box.run(SLEEP))
    started = await eventually(lambda: descendants(os.getpid()) - before, until=lambda found: len(found) >= 2)
    for pid in started:
        result = await box.run(
            """
            import os
            def f(pid):
                out = []
                for action in (lambda: open(f"/proc/{pid}/mem", "rb"), lambda: open(f"/proc/{pid}/environ"),
                               lambda: os.kill(pid, 0), lambda: os.sched_setaffinity(pid, {0}),
                               lambda: os.setpriority(os.PRIO_PROCESS, pid, 19)):
                    try:
                        action()
                        out.append("done")
                    except OSError:
                        pass
                return out
            """,
            pid=pid,
        )
        assert result.value == "[]"
    await cancelled(sibling)


def _open_to_all(folder: Path) -> None:
    """Only the sandbox may keep code out, not the modes of the folders."""
    for each in (folder, folder.parent, folder.parent.parent):
        each.chmod(0o777)
