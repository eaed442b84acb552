"""The server process that is killed: started again and again on the same address and the same data."""

import asyncio
import random
import signal
import socket
import subprocess
import sys
from pathlib import Path

from tests.helpers.server import ServerProcess, environment

# Below the ports that the kernel hands out: while the server is down, no other connection may sit on its port.
_PORTS = range(20_000, 32_000)


class Victim:
    """A server on the data in a folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.marks = folder / "marks.jsonl"
        self.log_file = folder / "server.log"
        self.settings = {
            "BRIDLE_GRPC_ADDRESS": _lasting_address(),
            "BRIDLE_HTTP_ADDRESS": "127.0.0.1:0",
            "BRIDLE_DATA_DIR": str(folder / "data"),
            "BRIDLE_LOG_LEVEL": "warning",
        }
        self.server = self.spawn()

    @property
    def address(self) -> str:
        """Where it is, alive or not."""
        return self.settings["BRIDLE_GRPC_ADDRESS"]

    def spawn(self, **settings: str) -> ServerProcess:
        """Start a process on the same folder; it is not waited for."""
        given = {**self.settings, **settings}
        with self.log_file.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.server_main", str(self.marks)],
                env=environment(**given),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return ServerProcess(process, given, self.log_file)

    async def ready(self) -> None:
        """Until it serves."""
        await self.server.wait_ready(timeout=30)

    async def kill(self) -> None:
        """kill -9, and wait until the kernel has taken everything from it."""
        self.server.process.kill()
        await asyncio.to_thread(self.server.process.wait)

    def start_again(self) -> None:
        """A new process in its place."""
        assert self.server.process.poll() is not None
        self.server = self.spawn()

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT."""
        self.server.process.send_signal(number)


def _lasting_address() -> str:
    while True:
        address = ("127.0.0.1", random.choice(_PORTS))
        with socket.socket() as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
        return f"{address[0]}:{address[1]}"
