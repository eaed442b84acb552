"""Refuse files, classes and functions that have grown beyond the house limits."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

MAX_FILE, MAX_CLASS, MAX_FUNCTION = 600, 300, 80

_FOLDERS = ("common", "services", "gateway", "proto", "scripts", "tests")
_SUFFIXES = {".py", ".proto", ".sh", ".js", ".ts", ".go", ".css", ".html"}
# Generated, copied, or a record of the past: not written to be read top to bottom.
_EXEMPT = ("common/pb/", "common/db/migrations/", "proto/third_party/")


def checked_files(root: Path) -> Iterator[Path]:
    """The source files that the limits apply to."""
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            relative = path.relative_to(root).as_posix()
            if path.suffix in _SUFFIXES and "node_modules" not in path.parts and not relative.startswith(_EXEMPT):
                yield path


def oversize(path: Path) -> Iterator[str]:
    """What in this file is too long, one line each."""
    text = path.read_text(encoding="utf-8")
    lines = len(text.splitlines())
    if lines > MAX_FILE:
        yield f"{path}: {lines} lines, at most {MAX_FILE}"
    if path.suffix != ".py":
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            limit = MAX_CLASS
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            limit = MAX_FUNCTION
        else:
            continue
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > limit:
            yield f"{path}:{node.lineno}: {node.name} has {length} lines, at most {limit}"


def problems(root: Path) -> list[str]:
    """Everything too long below `root`."""
    return [problem for path in checked_files(root) for problem in oversize(path)]


def main() -> int:
    """Run from the command line."""
    found = problems(Path(__file__).resolve().parent.parent)
    for problem in found:
        print(problem)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
