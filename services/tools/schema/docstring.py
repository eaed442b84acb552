"""Docstrings: what a function does and what its parameters mean. Google style; Sphinx and NumPy style are read too."""

import inspect
import re

from msgspec import Struct

_PARAMETERS = frozenset({"args", "arguments", "parameters", "params", "attributes", "keyword args", "other parameters"})
# For people who call the function, not for a model: it sees what comes back.
_LEFT_OUT = frozenset({"returns", "return", "yields", "yield", "raises", "raise"})
_HEADING = re.compile(r"([A-Z][A-Za-z ]*):\s*")
_GOOGLE = re.compile(r"\*{0,2}(?P<name>\w+)\s*(\((?P<type>.*?)\))?\s*:(?P<text>.*)")
_SPHINX = re.compile(
    r":(?P<kind>param|parameter|arg|argument|key|keyword|type|returns?|rtype|raises?)\b(?P<what>[^:]*):(?P<text>.*)"
)
_NUMPY = re.compile(r"(?P<names>\w+(\s*,\s*\w+)*)(\s*:.*)?")


class Docstring(Struct, frozen=True):
    """A docstring in its parts."""

    description: str
    parameters: dict[str, str]


def parse(text: str) -> Docstring:
    """The parts of a docstring. Sections about neither parameters nor results stay in the description."""
    told: list[str] = []
    parameters: dict[str, str] = {}
    for heading, underlined, lines in _sections(inspect.cleandoc(text).splitlines()):
        if heading in _PARAMETERS:
            parameters |= _numpy(lines) if underlined else _google(lines)
        elif heading not in _LEFT_OUT:
            rest, found = _sphinx(lines)
            told += rest
            parameters |= found
    return Docstring("\n".join(told).strip(), parameters)


def _sections(lines: list[str]) -> list[tuple[str, bool, list[str]]]:
    """(heading in lower case, whether it is underlined, lines). What is kept as text keeps its heading line."""
    sections: list[tuple[str, bool, list[str]]] = [("", False, [])]
    number = 0
    while number < len(lines):
        line = lines[number]
        underlined = number + 1 < len(lines) and bool(re.fullmatch(r"-{3,}\s*", lines[number + 1]))
        found = _HEADING.fullmatch(line)
        heading = line.strip().lower() if underlined else found[1].lower() if found else ""
        if heading in _PARAMETERS | _LEFT_OUT:
            sections.append((heading, underlined, []))
            number += 2 if underlined else 1
            continue
        # Text that is not indented ends a Google section; another heading ends any.
        ends = bool(heading) or (bool(line) and not line[0].isspace() and not sections[-1][1])
        if sections[-1][0] and ends:
            sections.append(("", False, []))
        sections[-1][2].append(line)
        number += 1
    return sections


def _google(lines: list[str]) -> dict[str, str]:
    depth = min((_indent(line) for line in lines if line.strip()), default=0)
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        match = _GOOGLE.fullmatch(line.strip()) if _indent(line) == depth else None
        if match is not None:
            current = found.setdefault(match["name"], [])
            current.append(match["text"])
        elif current is not None:
            current.append(line)
    return _joined(found)


def _numpy(lines: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[list[str]] = []
    for line in lines:
        match = _NUMPY.fullmatch(line) if line and not line[0].isspace() else None
        if match is not None:
            current = [found.setdefault(name.strip(), []) for name in match["names"].split(",")]
        for each in current if match is None else ():
            each.append(line)
    return _joined(found)


def _sphinx(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    rest: list[str] = []
    found: dict[str, list[str]] = {}
    current = rest
    for line in lines:
        match = _SPHINX.fullmatch(line.strip())
        if match is not None:
            what = match["what"].split()
            is_parameter = match["kind"] in {"param", "parameter", "arg", "argument", "key", "keyword"} and what
            current = found.setdefault(what[-1].lstrip("*"), []) if is_parameter else []
            current.append(match["text"])
        else:
            # A field list ends with a line that is not indented.
            current = rest if line and not line[0].isspace() else current
            current.append(line)
    return rest, _joined(found)


def _joined(found: dict[str, list[str]]) -> dict[str, str]:
    return {name: " ".join(" ".join(lines).split()) for name, lines in found.items()}


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip()) if line.strip() else -1
