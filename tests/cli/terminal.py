"""A program on a terminal of its own: typed at, read from, interrupted."""

import contextlib
import errno
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from tests.helpers import eventually

# Makes the terminal the controlling one, as a login shell would, so that Ctrl-C becomes a SIGINT.
_LAUNCH = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
_ESCAPES = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[=>])")


class Terminal:
    """What a person sees and does."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self._process = process
        self._master = master
        self._raw = b""
        self._seen = 0

    @property
    def raw(self) -> str:
        """Everything that came, escape codes included."""
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    chunk = os.read(self._master, 65_536)
                except OSError as error:
                    # Linux says this when the program at the other end is gone.
                    if error.errno != errno.EIO:
                        raise
                    break
                if not chunk:
                    break
                self._raw += chunk
        return self._raw.decode(errors="replace")

    @property
    def text(self) -> str:
        """Everything that came, as it reads."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    async def expect(self, words: str, timeout: float = 10.0) -> str:
        """Wait for words after those that were expected last; what was read until then."""

        def found() -> str | None:
            at = self.text.find(words, self._seen)
            assert at >= 0, f"no {words!r} in {self.text[self._seen :]!r}"
            return self.text[self._seen : at + len(words)]

        passage = await eventually(found, timeout=timeout)
        assert passage is not None
        self._seen += len(passage)
        return passage

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def press_ctrl_c(self) -> None:
        """Interrupt."""
        self.type("\x03")

    def press_ctrl_d(self) -> None:
        """End of input."""
        self.type("\x04")

    async def exit_code(self, timeout: float = 10.0) -> int:
        """How it ended. Its output is read on, or it could not end."""

        def ended() -> tuple[str, int | None]:
            return self.text, self._process.poll()

        _, code = await eventually(ended, timeout=timeout, until=lambda state: state[1] is not None)
        assert code is not None
        return code


@asynccontextmanager
async def terminal(argv: Sequence[str], env: Mapping[str, str]) -> AsyncIterator[Terminal]:
    """Run a program on a new terminal of 120 columns."""
    process, master = _spawn(argv, env)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        os.close(master)


def _spawn(argv: Sequence[str], env: Mapping[str, str]) -> tuple[subprocess.Popen[bytes], int]:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    os.set_blocking(master, False)
    process = subprocess.Popen(
        [sys.executable, "-c", _LAUNCH, *argv],
        env={**env, "TERM": "xterm-256color"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    return process, master
