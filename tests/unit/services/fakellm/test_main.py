"""`bridle fake-llm` as a process."""

import asyncio
import json
import signal
import socket
import subprocess
from pathlib import Path

import pytest

from services.cli import main
from services.fakellm.scripts import Api
from tests.helpers.server import BRIDLE, environment, free_address
from tests.unit.services.fakellm.raw import body, encoded


async def test_it_says_how_to_use_it_serves_and_ends(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\nscript = {type = "answer", parts = [{do = "say", text = "by rule"}]}\n')
    address = free_address()
    command = (*BRIDLE, "fake-llm", "--address", address, "--rules", str(rules))
    process = await asyncio.create_subprocess_exec(*command, env=environment(), stdout=subprocess.PIPE)
    assert process.stdout is not None
    said = b""
    while b"/requests" not in said:
        said += await process.stdout.readline()
    assert f"OPENAI_BASE_URL=http://{address}/v1" in said.decode()
    assert f"ANTHROPIC_BASE_URL=http://{address} " in said.decode()
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(encoded(Api.CHAT, body(Api.CHAT), "connection: close"))
    answer = await reader.read()
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["message"]["content"] == "by rule"
    writer.close()
    await writer.wait_closed()
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Exit code and stderr."""
    with pytest.raises(SystemExit) as ended:
        main(argv)
    code = ended.value.code
    assert isinstance(code, int)
    return code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--address", "nowhere"], 2, "expected host:port"),
        (["--address", "0.0.0.0:1"], 1, "bridle: 0.0.0.0:1 is not a loopback address; --insecure-bind allows it\n"),
        (["--rules", "/no/such.json"], 1, "bridle: cannot read /no/such.json: No such file or directory\n"),
    ],
)
def test_what_keeps_it_from_starting(capsys: pytest.CaptureFixture[str], argv: list[str], code: int, said: str) -> None:
    ended, err = run(capsys, "fake-llm", *argv)
    assert ended == code
    assert said in err


def test_a_busy_port(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert run(capsys, "fake-llm", "--address", address) == (
            1,
            f"bridle: cannot listen on {address}: Address already in use\n",
        )
