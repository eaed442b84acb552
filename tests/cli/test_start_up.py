"""What can go wrong before a server serves: one clear line, exit code 1, no traceback."""

import json
import signal
import socket
import urllib.request
from pathlib import Path

import grpc.aio

from common.pb.bridle.v1 import (
    agent_pb2,
    agent_service_pb2,
    agent_service_pb2_grpc,
    message_pb2,
    run_service_pb2,
    run_service_pb2_grpc,
)
from tests.cli.conftest import Bridle, Finished
from tests.helpers import eventually
from tests.helpers.server import ServerProcess, free_address, running_server


def refused(ended: Finished) -> str:
    """The one line that a refused start prints."""
    assert ended.code == 1, ended
    assert ended.out == ""
    assert ended.err.startswith("bridle: ")
    assert ended.err.count("\n") == 1, ended.err
    return ended.err


async def test_a_busy_grpc_port(bridle: Bridle, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = await bridle(
            "serve", "--data-dir", str(tmp_path), "--grpc-address", address, "--http-address", free_address()
        )
    assert f"cannot listen on {address}" in refused(ended)


async def test_a_busy_http_port(bridle: Bridle, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = await bridle(
            "serve", "--data-dir", str(tmp_path), "--grpc-address", free_address(), "--http-address", address
        )
    assert address in refused(ended)


async def test_a_second_server_on_the_same_port(bridle: Bridle, server: ServerProcess, tmp_path: Path) -> None:
    ended = await bridle(
        "serve", "--data-dir", str(tmp_path), "--grpc-address", server.grpc_address, "--http-address", free_address()
    )
    assert "the port is in use" in refused(ended)


async def test_a_second_server_on_the_same_data(bridle: Bridle, server: ServerProcess) -> None:
    ended = await bridle(
        "serve",
        "--data-dir",
        str(server.data_dir),
        "--grpc-address",
        free_address(),
        "--http-address",
        free_address(),
    )
    assert "in use by another server" in refused(ended)


async def test_a_data_folder_that_cannot_be_made(bridle: Bridle, tmp_path: Path) -> None:
    # A file in its place, because the root user may write to any folder.
    (tmp_path / "file").write_text("in the way")
    ended = await bridle(
        "serve",
        "--data-dir",
        str(tmp_path / "file" / "data"),
        "--grpc-address",
        free_address(),
        "--http-address",
        free_address(),
    )
    assert str(tmp_path / "file" / "data") in refused(ended)


async def test_an_unknown_setting(bridle: Bridle) -> None:
    ended = await bridle("serve", BRIDLE_DATA_DIRECTORY="x")
    assert "BRIDLE_DATA_DIRECTORY is not a setting; did you mean BRIDLE_DATA_DIR?" in refused(ended)


async def test_a_bad_setting(bridle: Bridle) -> None:
    assert "BRIDLE_MAX_RUNS='many': expected a whole number" in refused(await bridle("serve", BRIDLE_MAX_RUNS="many"))


async def test_an_open_bind_without_credentials(bridle: Bridle) -> None:
    line = refused(await bridle("serve", BRIDLE_GRPC_ADDRESS="0.0.0.0:0"))
    assert "BRIDLE_GRPC_ADDRESS" in line


async def test_a_database_that_does_not_answer(bridle: Bridle) -> None:
    ended = await bridle(
        "serve",
        "--database-url",
        f"postgresql://u:hunter2@{free_address()}/d",
        BRIDLE_GRPC_ADDRESS=free_address(),
        BRIDLE_HTTP_ADDRESS=free_address(),
    )
    assert "hunter2" not in refused(ended)


def test_http_tells_health_and_metrics(server: ServerProcess) -> None:
    with urllib.request.urlopen(f"http://{server.http_address}/healthz") as answer:
        assert answer.status == 200
    with urllib.request.urlopen(f"http://{server.http_address}/metrics") as answer:
        assert b"bridle_" in answer.read()


def test_logs_are_json_when_nobody_watches(server: ServerProcess) -> None:
    lines = [json.loads(line) for line in server.logs().splitlines() if line.startswith("{")]
    assert lines
    assert {"time", "level", "message"} <= lines[0].keys()


async def test_sigterm_and_sigint_end_a_server_cleanly() -> None:
    async with running_server() as process:
        assert await process.terminate() == 0
    async with running_server() as process:
        process.process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
        assert "Traceback" not in process.logs()


async def test_an_empty_stop_does_not_wait_for_the_whole_drain() -> None:
    async with running_server(BRIDLE_DRAIN_SECONDS="60") as process:
        assert await process.terminate(timeout=5) == 0


async def test_a_second_sigint_ends_a_drain_at_once() -> None:
    async with running_server(BRIDLE_DRAIN_SECONDS="60") as process:
        async with grpc.aio.insecure_channel(process.grpc_address) as channel:
            agents = agent_service_pb2_grpc.AgentServiceStub(channel)
            request = agent_service_pb2.CreateAgentRequest(agent=agent_pb2.Agent(model="demo/silent"))
            agent = await agents.CreateAgent(request, timeout=5)
            message = message_pb2.InputMessage(parts=[message_pb2.Part(text=message_pb2.Text(text="hello?"))])
            runs = run_service_pb2_grpc.RunServiceStub(channel)
            await runs.CreateRun(run_service_pb2.CreateRunRequest(agent_id=agent.id, messages=[message]), timeout=5)
        process.process.send_signal(signal.SIGINT)
        await eventually(lambda: "draining" in process.logs())
        process.process.send_signal(signal.SIGINT)
        await process.wait(timeout=5)
        assert "Traceback" not in process.logs()
