"""Write the table of settings into the README, between its two marks; --check only compares."""

import argparse
import sys
from pathlib import Path

from common.settings import Settings

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN = "<!-- settings: made by scripts/config_table.py -->"
END = "<!-- /settings -->"


def table() -> str:
    """Every setting as a Markdown table."""
    rows = [
        f"| `{spec.env}` | {f'`{spec.default}`' if spec.default else ''} | {spec.doc} |" for _, spec in Settings.specs()
    ]
    return "\n".join(["| variable | default | what it does |", "|---|---|---|", *rows])


def updated(text: str) -> str:
    """The text with the current table between the marks."""
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the README has no marks {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, change nothing")
    check = parser.parse_args().check
    text = README.read_text(encoding="utf-8")
    if updated(text) == text:
        print("the README's table of settings is current")
        return 0
    if check:
        print("the README's table of settings is stale: run scripts/config_table.py")
        return 1
    README.write_text(updated(text), encoding="utf-8")
    print("the README's table of settings was renewed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
