"""Which request gets which script."""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec
from msgspec import Struct

from common.startup import StartupError
from services.fakellm.asked import Asked
from services.fakellm.scripts import Api, Script


class Rule(Struct, frozen=True, forbid_unknown_fields=True):
    """A script, and the requests that it is for. What is left out matches everything."""

    script: Script
    api: Api | None = None
    # A glob such as `gpt-*`.
    model: str = "*"
    # A regular expression that is looked for in the last text of the user.
    text: str = ""
    # Only requests that are bigger than this, by a rough count.
    over_tokens: int = 0
    # Only the n-th of the requests that match all of the above, from 1.
    nth: int = 0
    # At most so many of them.
    times: int = 0


class Rules:
    """Rules in order: the first that matches wins."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._rules = [_Counted(rule) for rule in rules]

    def add(self, rule: Rule) -> None:
        """A rule that comes before those that are there."""
        self._rules.insert(0, _Counted(rule))

    def clear(self) -> None:
        """No rules any more."""
        self._rules.clear()

    def choose(self, asked: Asked) -> Script | None:
        """The script for this request, if a rule has one."""
        return next((counted.rule.script for counted in self._rules if counted.takes(asked)), None)


class _Counted:
    """A rule and how many requests have matched it."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self._text = re.compile(rule.text)
        self._matched = 0

    def takes(self, asked: Asked) -> bool:
        rule = self.rule
        if rule.api not in (None, asked.api) or not fnmatchcase(asked.model, rule.model):
            return False
        if asked.input_tokens <= rule.over_tokens or not self._text.search(asked.said):
            return False
        self._matched += 1
        if rule.nth and self._matched != rule.nth:
            return False
        return not rule.times or self._matched <= rule.times


class _File(Struct, forbid_unknown_fields=True):
    rules: list[Rule]


def load(path: Path) -> list[Rule]:
    """The rules of a JSON or TOML file; StartupError says what is wrong with it."""
    decode = msgspec.toml.decode if path.suffix == ".toml" else msgspec.json.decode
    try:
        rules = decode(path.read_bytes(), type=_File).rules
        for rule in rules:
            re.compile(rule.text)
    except OSError as error:
        raise StartupError(f"cannot read {path}: {error.strerror}") from None
    except (msgspec.DecodeError, re.error, ValueError) as error:
        raise StartupError(f"{path}: {error}") from None
    return rules
