"""Pipes that untrusted code writes to: read as it comes, bounded, never blocking."""

import asyncio
import os
from collections.abc import Callable

_CHUNK = 65_536


class PipeReader:
    """Keeps what comes out of a pipe, up to a number of bytes."""

    def __init__(self, descriptor: int, most: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor = descriptor
        self._most = most
        self._kept = bytearray()
        self.total = 0
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(descriptor, self._on_data)

    def content(self) -> bytes:
        """What was kept."""
        return bytes(self._kept)

    def drain(self) -> None:
        """Read what is still in the pipe, when its writers are gone."""
        while self._descriptor >= 0 and self._read():
            pass

    def close(self) -> None:
        """Read no more."""
        if self._descriptor >= 0:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _on_data(self) -> None:
        self._read()

    def _read(self) -> bool:
        try:
            data = os.read(self._descriptor, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self.total += len(data)
        self._kept += data[: max(0, self._most - len(self._kept))]
        return True


class Capture(PipeReader):
    """stdout or stderr as text, with a notice of what was dropped."""

    def __init__(self, descriptor: int, most: int, far_too_much: int, on_far_too_much: Callable[[], None]) -> None:
        super().__init__(descriptor, most)
        self._far_too_much = far_too_much
        self._complain = on_far_too_much

    def text(self) -> str:
        """What was kept, and how much was not."""
        kept = self._kept.decode(errors="replace").replace("\0", "�")
        dropped = self.total - len(self._kept)
        return f"{kept}\n[{dropped} more bytes were dropped]" if dropped else kept

    def _on_data(self) -> None:
        super()._on_data()
        if self.total > self._far_too_much:
            self._complain()
