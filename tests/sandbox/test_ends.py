"""When the zygote or the server dies."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.sandbox.model import MINIMUM, Job, Mode, Reason
from services.sandbox.sandbox import Sandbox
from tests.helpers.missing import missing
from tests.helpers.server import environment
from tests.helpers.wait import eventually
from tests.sandbox.leftovers import alive, descendants, descriptors, folders
from tests.sandbox.rig import LIMITS

_ROOT = Path(__file__).resolve().parent.parent.parent
_SLEEP = "import time\ndef f(): time.sleep(1000)"


@pytest.fixture(params=[True, False], ids=["namespaces", "plain"])
async def sandbox(request: pytest.FixtureRequest) -> AsyncIterator[Sandbox]:
    """A sandbox of its own."""
    made = Sandbox(LIMITS, namespaces=request.param)
    await made.start()
    try:
        if not made.walls().standing >= MINIMUM:
            missing(f"not even the minimum here: {made.walls()}")
        yield made
    finally:
        await made.close()


def _zygote(sandbox: Sandbox) -> int:
    assert sandbox._zygote is not None  # noqa: SLF001 - the victim
    return sandbox._zygote.pid  # noqa: SLF001


async def test_a_killed_zygote_is_replaced(sandbox: Sandbox) -> None:
    before = descendants(os.getpid())
    calls = [asyncio.ensure_future(sandbox.run(Job(_SLEEP, "f"))) for _ in range(3)]
    await eventually(lambda: descendants(os.getpid()) - before, until=lambda found: len(found) >= 6)
    running = descendants(_zygote(sandbox)) | {_zygote(sandbox)}
    os.kill(_zygote(sandbox), signal.SIGKILL)
    for result in await asyncio.gather(*calls):
        assert result.reason is Reason.KILLED
        assert result.error
    result = await sandbox.run(Job("def f(): return 1", "f"))
    assert result.value == "1"
    await eventually(lambda: alive(running), until=lambda found: not found)


async def test_a_killed_guard_takes_its_call_along(sandbox: Sandbox) -> None:
    """Also one that forks without end."""
    source = """
import os
def f():
    while True:
        try:
            os.fork()
        except OSError:
            pass
"""
    call = asyncio.ensure_future(sandbox.run(Job(source, "f")))
    # Not that of the trial call, which may still wait to be buried.
    guards = await eventually(lambda: [pid for pid in _children(_zygote(sandbox)) if _children(pid)])
    running = descendants(_zygote(sandbox))
    os.kill(guards[0], signal.SIGKILL)
    assert (await call).reason is Reason.KILLED
    await eventually(lambda: descendants(_zygote(sandbox)), until=lambda found: not found)
    await eventually(lambda: alive(running), until=lambda found: not found)
    assert (await sandbox.run(Job("def f(): return 1", "f"))).value == "1"


def _children(pid: int) -> list[int]:
    try:
        return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


async def test_calls_that_come_while_there_is_no_zygote_wait(sandbox: Sandbox) -> None:
    for _ in range(3):
        os.kill(_zygote(sandbox), signal.SIGKILL)
        results = await asyncio.gather(*(sandbox.run(Job("def f(): return 1", "f")) for _ in range(5)))
        # A call that reached the dying one may have begun: it is not run twice.
        assert {result.reason for result in results} <= {Reason.OK, Reason.KILLED}
        assert (await sandbox.run(Job("def f(): return 1", "f"))).reason is Reason.OK


@pytest.mark.parametrize("namespaces", [True, False])
async def test_close_ends_everything(namespaces: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    open_files, before = descriptors(), descendants(os.getpid())
    sandbox = Sandbox(LIMITS, namespaces=namespaces)
    await sandbox.start()
    call = asyncio.ensure_future(sandbox.run(Job(_SLEEP, "f")))
    await eventually(lambda: descendants(os.getpid()) - before, until=lambda found: len(found) >= 3)
    await sandbox.close()
    assert (await call).reason is Reason.KILLED
    assert descendants(os.getpid()) <= before
    assert folders(tmp_path) == []
    assert descriptors() <= open_files


@pytest.mark.parametrize("kind", ["namespaces", "plain"])
async def test_nothing_survives_a_killed_server(kind: str, tmp_path: Path) -> None:
    path = os.pathsep.join((str(_ROOT), os.environ.get("PYTHONPATH", "")))
    with subprocess.Popen(  # noqa: ASYNC220 - as long as an exec
        [sys.executable, "-m", "tests.sandbox.host", kind],
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env=environment(PYTHONPATH=path, TMPDIR=str(tmp_path)),
    ) as server:
        assert server.stdout is not None
        running = {int(pid) for pid in (await asyncio.to_thread(server.stdout.readline)).split()}
        assert len(running) >= 7
        server.kill()
    await eventually(lambda: alive(running), until=lambda found: not found)
    await eventually(lambda: folders(tmp_path), until=lambda found: not found)


async def test_a_start_that_fails_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.sandbox.zygote._PROGRAM", "raise SystemExit(3)")
    sandbox = Sandbox(LIMITS, mode=Mode.OFF)
    await sandbox.start()
    try:
        result = await sandbox.run(Job("def f(): return 1", "f"))
        assert result.reason is Reason.REFUSED
        assert "could not be started" in result.error
        assert "ended while it started" in sandbox.walls().details["sandbox"]
    finally:
        await sandbox.close()
