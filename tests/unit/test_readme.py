"""What the README says of files and settings is what they say."""

import re
from pathlib import Path

import pytest

from scripts import config_table

ROOT = Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = ("README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")))

# A link to an example, and the code that follows it.
_SNIPPET = re.compile(r"\[`(?P<path>examples/[^`]+)`\][^\n]*\n\n```\w+\n(?P<code>.*?)```\n", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:)(?P<target>[^)#]+)\)")


def test_the_settings_are_current() -> None:
    assert config_table.updated(README) == README, "run scripts/config_table.py"


def test_there_is_a_snippet_of_each_example() -> None:
    shown = [Path(found["path"]).parts[1] for found in _SNIPPET.finditer(README)]
    assert sorted(shown) == sorted(path.name for path in (ROOT / "examples").iterdir() if path.is_dir())


@pytest.mark.parametrize("path", [found["path"] for found in _SNIPPET.finditer(README)])
def test_snippets_are_the_files(path: str) -> None:
    (code,) = (found["code"] for found in _SNIPPET.finditer(README) if found["path"] == path)
    assert code == (ROOT / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    targets = _LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert not [target for target in targets if not ((ROOT / page).parent / target).exists()]
