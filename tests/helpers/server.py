"""A real `bridle serve` process for tests that need one: started, watched, killed."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from common.rpc.health import READINESS
from tests.helpers.wait import eventually

ROOT = Path(__file__).resolve().parent.parent.parent
BRIDLE = (sys.executable, "-m", "services")

# A channel backs off for seconds after a refused connection; a server that starts should be noticed at once.
_IMPATIENT = [("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 100)]


def environment(**settings: str) -> dict[str, str]:
    """The environment of a `bridle` process: ours, without our BRIDLE_ variables, with these."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("BRIDLE_")}
    return {**inherited, "PYTHONPATH": str(ROOT), **settings}


def free_address() -> str:
    """A loopback address that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@dataclass
class ServerProcess:
    """A server and what is needed to talk to it, or to start another one in its place."""

    process: subprocess.Popen[bytes]
    settings: dict[str, str]
    log_file: Path

    @property
    def grpc_address(self) -> str:
        """Where its gRPC is."""
        return self.settings["BRIDLE_GRPC_ADDRESS"]

    @property
    def http_address(self) -> str:
        """Where its HTTP is."""
        return self.settings["BRIDLE_HTTP_ADDRESS"]

    @property
    def data_dir(self) -> Path:
        """Where its data is."""
        return Path(self.settings["BRIDLE_DATA_DIR"])

    def logs(self) -> str:
        """Everything it has printed."""
        return self.log_file.read_text(errors="replace")

    async def wait_ready(self, timeout: float = 15.0) -> None:
        """Until its readiness is SERVING; fails with its log if it ends before that."""
        async with grpc.aio.insecure_channel(self.grpc_address, options=_IMPATIENT) as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )

            async def ready() -> bool:
                if self.process.poll() is not None:
                    raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self.logs()}")
                try:
                    answer = await check(health_pb2.HealthCheckRequest(service=READINESS), timeout=1.0)
                except grpc.aio.AioRpcError:
                    return False
                return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

            await eventually(ready, timeout=timeout, interval=0.05)

    async def wait(self, timeout: float = 15.0) -> int:
        """Its exit code, once it has ended."""
        return await asyncio.to_thread(self.process.wait, timeout)

    async def terminate(self, timeout: float = 15.0) -> int:
        """Ask it to end (SIGTERM) and wait until it has."""
        self.process.terminate()
        return await self.wait(timeout)

    async def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        self.process.kill()
        await self.wait()


async def start_server(**settings: str) -> ServerProcess:
    """Start a server and wait until it is ready. What is not given is a free port and a new data folder."""
    given = {"BRIDLE_GRPC_ADDRESS": free_address(), "BRIDLE_HTTP_ADDRESS": free_address(), **settings}
    if "BRIDLE_DATA_DIR" not in given:
        given["BRIDLE_DATA_DIR"] = tempfile.mkdtemp(prefix="bridle-")
    server = _spawn(given)
    try:
        await server.wait_ready()
    except BaseException:
        await server.kill()
        raise
    return server


@asynccontextmanager
async def running_server(**settings: str) -> AsyncIterator[ServerProcess]:
    """A server for the length of a block."""
    with tempfile.TemporaryDirectory(prefix="bridle-", ignore_cleanup_errors=True) as folder:
        server = await start_server(**{"BRIDLE_DATA_DIR": folder, **settings})
        try:
            yield server
        finally:
            await server.kill()


def _spawn(settings: dict[str, str]) -> ServerProcess:
    folder = Path(settings["BRIDLE_DATA_DIR"])
    folder.mkdir(parents=True, exist_ok=True)
    log_file = folder / "server.log"
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [*BRIDLE, "serve"], env=environment(**settings), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    return ServerProcess(process, settings, log_file)
