"""The size limits hold, and the check that says so can fail."""

from pathlib import Path

from scripts.check_sizes import MAX_CLASS, MAX_FILE, MAX_FUNCTION, problems

ROOT = Path(__file__).resolve().parents[2]


def put(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_this_repository_keeps_the_limits() -> None:
    assert problems(ROOT) == []


def test_at_the_limit_is_allowed(tmp_path: Path) -> None:
    body = "    x = 1\n"
    put(tmp_path, "common/full.py", "x = 1\n" * MAX_FILE)
    put(tmp_path, "common/function.py", "def f():\n" + body * (MAX_FUNCTION - 1))
    put(tmp_path, "common/class.py", "class C:\n" + body * (MAX_CLASS - 1))
    assert problems(tmp_path) == []


def test_one_line_more_is_named(tmp_path: Path) -> None:
    body = "    x = 1\n"
    put(tmp_path, "proto/bridle/v1/run.proto", "//\n" * (MAX_FILE + 1))
    put(tmp_path, "common/function.py", "async def f():\n" + body * MAX_FUNCTION)
    put(tmp_path, "common/class.py", "class C:\n" + body * MAX_CLASS)
    found = "\n".join(problems(tmp_path))
    assert "run.proto: 601 lines" in found
    assert "function.py:1: f has 81 lines" in found
    assert "class.py:1: C has 301 lines" in found


def test_generated_code_and_migrations_are_exempt(tmp_path: Path) -> None:
    for name in ("common/pb/bridle/v1/run_pb2.py", "common/db/migrations/versions/0001.py"):
        put(tmp_path, name, "x = 1\n" * (MAX_FILE + 1))
    assert problems(tmp_path) == []
