"""Builds the examples as a stranger would."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.helpers.server import ROOT

EXAMPLES = ROOT / "examples"
# Long enough to download and compile everything once; after that it takes seconds.
_BUILD_SECONDS = 240


@dataclass(frozen=True)
class Example:
    """A built client: run it with `[address] [text]`."""

    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


def build_python() -> Example:
    """With the protoc that we have."""
    folder = EXAMPLES / "python"
    _run("sh", "generate.sh", folder=folder, PYTHON=sys.executable)
    return Example((sys.executable, str(folder / "main.py")), {"PYTHONPATH": str(folder / "gen")})


def build_typescript() -> Example:
    """With what npm has, and nothing else."""
    _need("npm", in_ci=True)
    folder = EXAMPLES / "typescript"
    _npm_install(folder)
    _run("npm", "run", "--silent", "build", folder=folder)
    return Example(("node", str(folder / "dist" / "main.js")))


def build_go() -> Example:
    """With Go's own tools, and buf."""
    return _build_go(EXAMPLES / "go", "bridle-example")


def build_go_tools() -> Example:
    """The tool server: run it with `[address]`."""
    return _build_go(EXAMPLES / "go-tools", "bridle-tools")


def _build_go(folder: Path, program: str) -> Example:
    _need("go", in_ci=False)
    _need("npm", in_ci=True)
    tools = ROOT / "tools"
    _npm_install(tools)
    _fetch("go", "mod", "download", folder=folder)
    _run(str(tools / "node_modules" / ".bin" / "buf"), "generate", folder=folder)
    _run("go", "build", "-o", program, ".", folder=folder)
    return Example((str(folder / program),))


def _need(program: str, *, in_ci: bool) -> None:
    if shutil.which(program) is None:
        _unavailable(f"there is no {program} on this machine", in_ci=in_ci)


def _unavailable(why: str, *, in_ci: bool = True) -> None:
    if in_ci and os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


def _npm_install(folder: Path) -> None:
    # npm writes this file at the end of an install.
    done, wanted = folder / "node_modules" / ".package-lock.json", folder / "package-lock.json"
    if not done.exists() or done.stat().st_mtime < wanted.stat().st_mtime:
        _fetch("npm", "ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", folder=folder)


def _fetch(*command: str, folder: Path) -> None:
    """Run what needs the network, which a machine may not have."""
    done = _call(command, folder)
    if done.returncode != 0:
        _unavailable(f"{' '.join(command)} failed: {done.stdout}{done.stderr}")


def _run(*command: str, folder: Path, **environment: str) -> None:
    done = _call(command, folder, **environment)
    assert done.returncode == 0, f"{' '.join(command)} failed: {done.stdout}{done.stderr}"


def _call(command: tuple[str, ...], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=_BUILD_SECONDS,
        check=False,
    )


BUILDERS: Mapping[str, Callable[[], Example]] = {
    "python": build_python,
    "typescript": build_typescript,
    "go": build_go,
}
