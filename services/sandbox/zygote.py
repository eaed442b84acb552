"""The server's end of the zygote: starts it, sends it calls, notices its end."""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from services.sandbox.inside.zygote import DESCRIPTORS
from services.sandbox.model import Limits

# A number without an account. Only root can become it, and does.
_USER = 64_532
_START_SECONDS = 20.0
_MESSAGE_BYTES = 65_536
# The folder that holds the package `services`.
_CODE = Path(__file__).resolve().parents[2]
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from services.sandbox.inside.zygote import main; main(int(sys.argv[2]))"
)


class ZygoteLost(Exception):
    """The zygote ended, or could not start; the text says why."""


class ZygoteOptions(msgspec.Struct, frozen=True):
    """How to start one."""

    limits: Limits
    namespaces: bool
    network: bool = False
    # A folder of installed packages that calls may be shown; empty: none.
    packages: str = ""


class Zygote:
    """One zygote process."""

    def __init__(self, options: ZygoteOptions, on_end: Callable[["Zygote"], None]) -> None:
        self.options = options
        self.said: dict[str, Any] = {}
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._work = "" if options.namespaces else tempfile.mkdtemp(prefix="bridle-sandbox-")
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._control.setblocking(False)
        self._ended = False
        try:
            with theirs:
                self._process = self._spawn(theirs.fileno())
        except OSError as error:
            self._control.close()
            self._remove_work()
            raise ZygoteLost(f"the sandbox's process cannot be started: {error}") from error

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def _spawn(self, descriptor: int) -> subprocess.Popen[bytes]:
        # From the loop's thread: the kernel tells the zygote when the thread that started it ends.
        return subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-X", "utf8", "-c", _PROGRAM, str(_CODE), str(descriptor)],
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=True,
            pass_fds=(descriptor,),
            start_new_session=True,
        )

    async def start(self) -> None:
        """Configure it, and wait until it can take calls; ZygoteLost if it cannot."""
        options = self.options
        config = {
            "limits": msgspec.to_builtins(options.limits),
            "namespaces": options.namespaces,
            "network": options.network,
            "packages": options.packages,
            "work": self._work,
            "user": _USER,
        }
        try:
            async with asyncio.timeout(_START_SECONDS):
                self._control.send(json.dumps(config).encode())
                answer = await self._loop.sock_recv(self._control, _MESSAGE_BYTES)
        except TimeoutError:
            raise ZygoteLost(f"the sandbox's process was not ready within {_START_SECONDS:g} s") from None
        except OSError:
            answer = b""
        self.said = json.loads(answer) if answer else {"error": "the sandbox's process ended while it started"}
        if "error" in self.said:
            raise ZygoteLost(str(self.said["error"]))
        # It says nothing more: if the socket becomes readable, it has ended.
        self._loop.add_reader(self._control.fileno(), self._lost)

    def send(self, packages: str, descriptors: list[int]) -> None:
        """Start a call. ZygoteLost if there is nobody to start it: nothing has run then."""
        assert len(descriptors) == DESCRIPTORS  # noqa: S101 - the other side counts on it
        try:
            socket.send_fds(self._control, [json.dumps({"packages": packages}).encode()], descriptors)
        except OSError as error:
            raise ZygoteLost("the sandbox's process has ended") from error

    def _lost(self) -> None:
        if not self._ended:
            self._ended = True
            self._loop.remove_reader(self._control.fileno())
            self._on_end(self)

    async def close(self) -> None:
        """End it with everything that it runs."""
        if not self._ended:
            self._ended = True
            self._loop.remove_reader(self._control.fileno())
        self._control.close()
        try:
            await asyncio.to_thread(self._process.wait, 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        # Its own way out removes it, unless it was killed.
        await asyncio.to_thread(self._remove_work)

    def _remove_work(self) -> None:
        if self._work:
            shutil.rmtree(self._work, ignore_errors=True)


def job_file(content: bytes) -> int:
    """A descriptor from which exactly this can be read."""
    made = os.memfd_create("job", os.MFD_CLOEXEC)
    with open(made, "wb", closefd=False) as file:
        file.write(content)
    return made
