"""Code that was written for `letta-client` runs unchanged, in every version of the SDK that we promise."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from services.fakellm.server import FakeLlm, fake_llm
from tests.helpers.server import ROOT, ServerProcess, running_server
from tests.sdk.environments import NODE, PYTHON_VERSIONS, TWINS, node_modules, python_with

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlm]:
    """The provider behind all models."""
    async with fake_llm() as found:
        yield found


@pytest.fixture
async def server(fake: FakeLlm) -> AsyncIterator[ServerProcess]:
    """A server as a user starts it, with a key for each vendor."""
    async with running_server(
        OPENAI_API_KEY="fake",
        OPENAI_BASE_URL=fake.openai_base_url,
        ANTHROPIC_API_KEY="fake",
        ANTHROPIC_BASE_URL=fake.anthropic_base_url,
    ) as process:
        yield process


async def run(server: ServerProcess, *command: str) -> None:
    """Run a suite against the server; what it says is shown if it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LETTA_API_KEY")}
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**environment, "BRIDLE_URL": f"http://{server.http_address}"},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, f"{said.decode()}\n--- the server's log ---\n{server.logs()[-4000:]}"


@pytest.mark.parametrize("version", PYTHON_VERSIONS)
async def test_python(server: ServerProcess, version: str) -> None:
    python = await asyncio.to_thread(python_with, version)
    await run(server, str(python), "-m", "pytest", "-c", str(TWINS / "pytest.ini"), str(TWINS))


async def test_node(server: ServerProcess) -> None:
    await asyncio.to_thread(node_modules)
    await run(server, "node", "--test", "--test-concurrency=1", "--test-reporter=spec", str(NODE))
