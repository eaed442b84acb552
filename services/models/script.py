"""The little language in which a test tells a model what to do. The demo model and the fake provider both obey it.

What the last user message says decides:

    call roll_dice {"sides": 6}     calls a tool
    say good morning                says just that
    think about it                  reasons, before the rest of its turn
    count to 100                    says that many tokens; `count slowly to 100` takes 20 ms for each
    fail llm_rate_limit             fails the way a provider would
    anything else                   is echoed, word by word

` and ` joins what is done in one turn, ` then ` separates turns: `think hard and call a {} and call b {} then say so`.
A turn that the text says nothing about tells what the tools returned.
"""

import re
from collections.abc import Iterable

from msgspec import Struct

_TURNS = re.compile(r"\s+then\s+(?=(?:call|say|think|count|fail)\b)")
_CLAUSES = re.compile(r"\s+and\s+(?=(?:call|say|think|count)\b)")
_CALL = re.compile(r"call\s+(?P<name>[A-Za-z0-9_-]+)\s*(?P<arguments>\{.*\})?\s*\Z", re.DOTALL)
_SAY = re.compile(r"say\s+(?P<text>.+)\Z", re.DOTALL)
_THINK = re.compile(r"think\s+(?P<text>.+)\Z", re.DOTALL)
_COUNT = re.compile(r"count (?P<slowly>slowly )?to (?P<last>\d{1,6})\b")
_FAIL = re.compile(r"fail (?P<kind>llm_[a-z_]+|context_window_exceeded)\b")
_NUDGE = re.compile(r"ToolRuleViolated: You must call ([A-Za-z0-9_-]+)")

_SLOWLY = 0.02


class Situation(Struct, frozen=True):
    """What was said last and what has happened since."""

    said: str
    # Turns of calls that have been answered since, and `(tool, text)` of the last of them.
    turns: int = 0
    returns: tuple[tuple[str, str], ...] = ()
    # The tool to call if the turn must be a call and the text names none.
    forced: str = ""


class Call(Struct, frozen=True):
    """Calls a tool."""

    name: str
    arguments: str = "{}"


class Say(Struct, frozen=True):
    """Says something, word by word."""

    text: str


class Think(Struct, frozen=True):
    """Reasons."""

    text: str


class Count(Struct, frozen=True):
    """Says so many tokens, with so many seconds between two."""

    last: int
    pause: float = 0.0


class Fail(Struct, frozen=True):
    """Fails, in the way that this kind of error stands for."""

    kind: str


Deed = Call | Say | Think | Count | Fail


def deeds(situation: Situation) -> list[Deed]:
    """What to do in this turn, in order."""
    turns = _TURNS.split(situation.said.strip())
    told = _told(turns[situation.turns]) if situation.turns < len(turns) else []
    if told:
        return told
    nudged = _NUDGE.match(situation.said)
    if nudged and not situation.returns:
        return [Call(nudged.group(1))]
    if situation.forced:
        return [Call(situation.forced)]
    if situation.returns:
        return [Say("; ".join(f"{name} returned {text}" for name, text in situation.returns))]
    return [Say(f"You said: {situation.said}")]


def _told(turn: str) -> list[Deed]:
    """What a turn's text tells to do; nothing, if it is just a text."""
    found = [_clause(clause) for clause in _CLAUSES.split(turn)]
    return [deed for deed in found if deed is not None] if None not in found else []


def _clause(text: str) -> Deed | None:
    if match := _CALL.match(text):
        return Call(match["name"], match["arguments"] or "{}")
    if match := _SAY.match(text):
        return Say(match["text"])
    if match := _THINK.match(text):
        return Think(match["text"])
    if match := _COUNT.match(text):
        return Count(int(match["last"]), _SLOWLY if match["slowly"] else 0.0)
    if match := _FAIL.match(text):
        return Fail(match["kind"])
    return None


def numbers(last: int) -> Iterable[str]:
    """As many tokens as wanted."""
    return (f"{number} " for number in range(1, last + 1))


def split(text: str) -> list[str]:
    """A text as tokens: words with the space around them; nothing is lost."""
    return re.findall(r"\s*\S+\s*|\s+", text)
