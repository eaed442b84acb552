"""Environments with the SDK in one version each, made once and kept in `.sdk`."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.server import ROOT

PYTHON_VERSIONS = ("1.6.3", "1.7.12", "1.12.1")
TWINS = ROOT / "tests" / "sdk" / "twins"
NODE = ROOT / "tests" / "sdk" / "node"

_KEPT = ROOT / ".sdk"
_SECONDS = 300


def python_with(version: str) -> Path:
    """A Python that has this version of the SDK, and pytest."""
    folder = _KEPT / f"python-{version}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        shutil.rmtree(folder, ignore_errors=True)
        _fetch(sys.executable, "-m", "venv", str(folder))
        wanted = [f"letta-client=={version}", "pytest==9.2.0", "pytest-timeout==2.4.0"]
        _fetch(str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", *wanted)
        (folder / "ready").touch()
    return python


def node_modules() -> None:
    """What package-lock.json names, beside the tests."""
    if shutil.which("npm") is None:
        _unavailable("there is no npm on this machine")
    done, wanted = NODE / "node_modules" / ".package-lock.json", NODE / "package-lock.json"
    if not done.exists() or done.stat().st_mtime < wanted.stat().st_mtime:
        _fetch("npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", folder=NODE)


def _fetch(*command: str, folder: Path = ROOT) -> None:
    """Run what needs the network, which a machine may not have."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        _unavailable(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")


def _unavailable(why: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)
