"""The hostile list again, as in a restricted pod: an ordinary user, no capabilities, no new namespaces."""

import asyncio
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.missing import missing

_ROOT = Path(__file__).resolve().parent.parent.parent
_NOBODY = 65_534


def _command(folder: Path) -> list[str]:
    """How to run Python as nobody; an interpreter below somebody's home may be closed to others."""
    drop = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups", "--no-new-privs"]
    # setpriv still has capabilities when it starts the program: `env` starts the one that counts.
    drop += ["--bounding-set=-all", "env"]
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        if not Path(python).exists():
            continue
        command = [*drop, python, "-B"]
        probe = [*command, "-c", "import pytest, msgspec, prometheus_client, services.sandbox"]
        if not subprocess.run(probe, env=_environment(folder), cwd="/", capture_output=True, check=False).returncode:
            return command
    missing("there is no Python that another user may run")
    raise AssertionError


def _environment(folder: Path) -> dict[str, str]:
    path = f"{folder}:{sysconfig.get_path('purelib')}"
    return {"PATH": os.defpath, "PYTHONPATH": path, "TMPDIR": str(folder / "tmp"), "LANG": "C.UTF-8"}


@pytest.fixture
def readable() -> Iterator[Path]:
    """A copy of the code that everybody can read."""
    folder = Path(tempfile.mkdtemp(prefix="bridle-nobody-"))
    for name in ("common", "services/sandbox", "tests/sandbox", "tests/helpers", "pyproject.toml"):
        source, target = _ROOT / name, folder / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    shutil.copy(_ROOT / "services" / "__init__.py", folder / "services")
    shutil.copy(_ROOT / "tests" / "conftest.py", folder / "tests")
    (folder / "tests/sandbox/test_unprivileged.py").unlink()
    (folder / "tmp").mkdir()
    for each in (folder, *folder.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    (folder / "tmp").chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.timeout(240)
async def test_the_minimum_stands_and_holds(readable: Path) -> None:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv, to become another user")
    command = [*_command(readable), "-m", "tests.sandbox.restricted"]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=readable,
        env=_environment(readable),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, output.decode()[:6000]
    assert b" passed" in output
    assert b"calls may not start processes" not in output
