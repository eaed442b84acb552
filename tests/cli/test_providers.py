"""`bridle fake-llm`, `bridle serve` and `bridle chat --model …` as one types them, with only the SDKs' variables."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import Bridle
from tests.helpers.server import BRIDLE, ROOT, environment, running_server

EXPORT = re.compile(r"export (.+)")


def _start(*argv: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*BRIDLE, *argv], env=environment(), stdout=subprocess.PIPE, text=True)


@asynccontextmanager
async def fake_llm_process() -> AsyncIterator[dict[str, str]]:
    """`bridle fake-llm` on a free port, and the variables that it says to export."""
    process = _start("fake-llm", "--address", "127.0.0.1:0")
    assert process.stdout
    try:
        variables: dict[str, str] = {}
        async with asyncio.timeout(15):
            while len(variables) < 4:
                line = await asyncio.to_thread(process.stdout.readline)
                assert line, "the fake has ended"
                for found in EXPORT.findall(line):
                    variables |= dict(pair.split("=", 1) for pair in found.split())
        yield variables
    finally:
        process.terminate()
        assert await asyncio.to_thread(process.wait, 15) == 0
        process.stdout.close()


@pytest.mark.parametrize(
    ("handle", "vendor"), [("openai/gpt-5", "OPENAI"), ("anthropic/claude-sonnet-5-5", "ANTHROPIC")]
)
async def test_a_key_and_an_address_are_all_it_takes(bridle: Bridle, handle: str, vendor: str) -> None:
    async with fake_llm_process() as exported:
        variables = {name: value for name, value in exported.items() if name.startswith(vendor)}
        assert set(variables) == {f"{vendor}_API_KEY", f"{vendor}_BASE_URL"}
        async with running_server(**variables) as server:
            chat = ("chat", "--address", server.grpc_address, "--model", handle)
            said = await bridle(*chat, "Hello, horse")
            assert said.code == 0, said
            assert "Hello, horse" in said.out
            called = await bridle(*chat, "--tool", "roll_dice", 'call roll_dice {"sides": 6}')
            assert called.code == 0, called
            assert "* roll_dice returned" in called.out
            failed = await bridle(*chat, "fail llm_authentication")
            assert failed.code == 1, failed
            assert "refused the credentials" in failed.err


async def test_without_a_key_it_says_which(bridle: Bridle) -> None:
    async with running_server(OPENAI_API_KEY="", OPENAI_BASE_URL="", ANTHROPIC_API_KEY="") as server:
        for handle, variable in (("openai/gpt-5", "OPENAI_API_KEY"), ("anthropic/claude-x", "ANTHROPIC_API_KEY")):
            ended = await bridle("chat", "--address", server.grpc_address, "--model", handle, "hello")
            assert ended.code == 1, ended
            assert variable in ended.err


def test_the_page_says_what_the_program_says() -> None:
    page = (Path(ROOT) / "docs" / "fake-llm.md").read_text(encoding="utf-8")
    for variable in ("OPENAI_BASE_URL=http://127.0.0.1:9999/v1", "ANTHROPIC_BASE_URL=http://127.0.0.1:9999"):
        assert variable in page
    assert "bridle chat --model openai/" in page
    assert "bridle chat --model anthropic/" in page
