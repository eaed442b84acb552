"""Which tools may, must or may not be called next. Pure: rules and history in, decision out.

A rule is about its tool: if that tool is not attached, or none of the tools it names is, the rule locks nothing.
What is left has two strengths:

- prohibitions always hold: a tool whose count is used up, a child whose parent was not the last tool called
  (a child of several parents may follow any of them);
- "only these next" (child, parent, conditional) intersect and force a call. Where they leave nothing, they are lifted,
  because a model without tools could never get out of a contradiction; prohibitions are not.

Run-first comes before all of that but the count; a strict conditional without a match ends the calling of tools.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from decimal import Decimal, InvalidOperation
from re import compile as regex
from typing import TypeVar

from msgspec import DecodeError, Raw, Struct, json

from services.agents.model import (
    ChildTools,
    Conditional,
    Continue,
    MaxCount,
    ParentTools,
    RequiredBeforeExit,
    RequiresApproval,
    RunFirst,
    Terminal,
    ToolRule,
)

_Kind = TypeVar("_Kind", bound=ToolRule)

_NUMBER = regex(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
# Python's spelling too: a tool that returns a bool may have printed it.
_BOOLEANS = {"true": True, "True": True, "false": False, "False": False}


class PrefillError(ValueError):
    """The model's arguments are not an object that a rule's arguments could be merged into."""


class Called(Struct, frozen=True):
    """One tool that was called in this run, with the text it returned."""

    name: str
    output: str


class Offer(Struct, frozen=True):
    """The tools for the next model call, in the order they are attached, and whether it must call one."""

    names: tuple[str, ...]
    forced: bool


def offer(rules: Sequence[ToolRule], attached: Sequence[str], history: Sequence[Called]) -> Offer:
    """What the model may call next."""
    tools = tuple(dict.fromkeys(attached))
    relevant = [rule for rule in rules if rule.tool_name in tools]
    used_up = _used_up(relevant, history)
    first = {rule.tool_name for rule in _of(relevant, RunFirst)} - used_up
    if first and not history:
        return Offer(_keep(tools, first), forced=True)
    if _dead_end(relevant, history):
        return Offer((), forced=False)
    free = set(tools) - used_up - _guarded(relevant, history)
    only = [named & set(tools) for named in _only_next(relevant, history)]
    # A rule none of whose tools is attached locks nothing.
    only = [names for names in only if names]
    left = free.intersection(*only)
    if only and left:
        return Offer(_keep(tools, left), forced=True)
    return Offer(_keep(tools, free), forced=False)


def violation(rules: Sequence[ToolRule], attached: Sequence[str], history: Sequence[Called], name: str) -> str | None:
    """What to answer a call that is not allowed now; None if it is."""
    allowed = offer(rules, attached, history).names
    if name in allowed:
        return None
    return f"[ToolConstraintError] Cannot call {name}, valid tools include: {list(allowed)}"


def needs_approval(rules: Sequence[ToolRule], name: str) -> bool:
    """Whether a person has to approve a call of this tool."""
    return any(rule.tool_name == name for rule in _of(rules, RequiresApproval))


def is_terminal(rules: Sequence[ToolRule], name: str) -> bool:
    """Whether the run stops after this tool."""
    return any(rule.tool_name == name for rule in _of(rules, Terminal))


def plain(rules: Sequence[ToolRule]) -> bool:
    """Whether no rule looks at the order or number of calls, so that parallel calls may be requested."""
    return all(isinstance(rule, RequiresApproval | Continue) for rule in rules)


def missing_before_exit(
    rules: Sequence[ToolRule], attached: Sequence[str], history: Sequence[Called]
) -> tuple[str, ...]:
    """The attached tools that must still be called before the run may end."""
    called = {call.name for call in history}
    required = dict.fromkeys(rule.tool_name for rule in _of(rules, RequiredBeforeExit))
    return tuple(name for name in required if name in attached and name not in called)


def nudge(missing: Sequence[str]) -> str:
    """What the model is told when it would end the run too early."""
    return f"ToolRuleViolated: You must call {', '.join(missing)} at least once to exit the loop."


def prefilled(rules: Sequence[ToolRule], name: str, history: Sequence[Called], arguments: str) -> str:
    """The arguments with those merged over them that a rule gives to this call; the same text if none does."""
    fixed: dict[str, object] = {}
    for given in _given(rules, name, history):
        fixed |= given
    if not fixed:
        return arguments
    try:
        # Raw: the values that stay are passed on byte for byte, whatever their number format.
        written = json.decode(arguments, type=dict[str, Raw]) if arguments.strip() else {}
    except (DecodeError, UnicodeError, RecursionError) as error:
        raise PrefillError(f"The arguments of {name} are not a JSON object.") from error
    return json.encode({**written, **fixed}).decode()


def describe(rules: Sequence[ToolRule]) -> str:
    """The rules in words for the system prompt, in an order of their own; empty if there is nothing to say."""
    lines = sorted({_sentence(rule) for rule in rules} - {""})
    if first := sorted({rule.tool_name for rule in _of(rules, RunFirst)}):
        lines.insert(0, f"The first tool you call must be {_or(first)}.")
    if not lines:
        return ""
    return "\n".join(["Rules for calling tools:", *(f"- {line}" for line in lines)])


def _of(rules: Sequence[ToolRule], kind: type[_Kind]) -> Iterator[_Kind]:
    return (rule for rule in rules if isinstance(rule, kind))


def _keep(tools: tuple[str, ...], names: AbstractSet[str]) -> tuple[str, ...]:
    return tuple(tool for tool in tools if tool in names)


def _last(history: Sequence[Called]) -> str | None:
    return history[-1].name if history else None


def _used_up(rules: Sequence[ToolRule], history: Sequence[Called]) -> set[str]:
    count = Counter(call.name for call in history)
    return {rule.tool_name for rule in _of(rules, MaxCount) if count[rule.tool_name] >= rule.limit}


def _guarded(rules: Sequence[ToolRule], history: Sequence[Called]) -> set[str]:
    """The children whose parent, any of several, was not the last tool called."""
    open_now: set[str] = set()
    guarded: set[str] = set()
    for rule in _of(rules, ParentTools):
        (open_now if rule.tool_name == _last(history) else guarded).update(rule.children)
    return guarded - open_now


def _only_next(rules: Sequence[ToolRule], history: Sequence[Called]) -> Iterator[set[str]]:
    """For each rule about the last tool called that picks what follows: what it picks."""
    for rule in rules:
        if rule.tool_name != _last(history):
            continue
        if isinstance(rule, ChildTools | ParentTools):
            yield set(rule.children)
        elif isinstance(rule, Conditional) and (picked := _match(rule, history[-1].output) or rule.default_child):
            yield {picked}


def _dead_end(rules: Sequence[ToolRule], history: Sequence[Called]) -> bool:
    """Whether the last tool returned what its strict conditional has no tool for."""
    return any(
        rule.require_output_mapping and rule.tool_name == _last(history) and _match(rule, history[-1].output) is None
        for rule in _of(rules, Conditional)
    )


def _match(rule: Conditional, output: str) -> str | None:
    """The tool this return picks: by the same text, else by the same value."""
    if output in rule.child_output_mapping:
        return rule.child_output_mapping[output]
    value = _scalar(output)
    if value is None:
        return None
    # Sorted: two spellings of one value pick the same tool whatever order the map arrived in.
    for key, tool in sorted(rule.child_output_mapping.items()):
        other = _scalar(key)
        # True == 1 in Python; here they are different answers.
        if type(other) is type(value) and other == value:
            return tool
    return None


def _scalar(text: str) -> bool | Decimal | None:
    """The boolean or number that the text spells, exactly; None for any other text."""
    text = text.strip()
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if not _NUMBER.fullmatch(text):
        return None
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond what can be computed with
        return None


def _given(rules: Sequence[ToolRule], name: str, history: Sequence[Called]) -> Iterator[dict[str, object]]:
    """The arguments that rules give to this call as it stands in the run."""
    for rule in rules:
        if isinstance(rule, RunFirst) and not history and rule.tool_name == name:
            yield rule.args or {}
        elif isinstance(rule, ChildTools) and rule.tool_name == _last(history) and name in rule.children:
            yield (rule.child_args or {}).get(name, {})


def _or(names: Sequence[str]) -> str:
    return " or ".join(names)


def _sentence(rule: ToolRule) -> str:
    tool = rule.tool_name
    match rule:
        case ChildTools():
            return f"Directly after {tool}, call {_or(rule.children)}."
        case ParentTools():
            return f"Call {_or(rule.children)} only directly after {tool}, and then nothing else."
        case Conditional():
            return _conditional_sentence(rule)
        case MaxCount():
            return f"Call {tool} at most {rule.limit} time{'' if rule.limit == 1 else 's'}."
        case RequiredBeforeExit():
            return f"Call {tool} at least once before you finish."
        case Terminal():
            return f"After {tool} you are done."
        case RequiresApproval():
            return f"A call of {tool} waits until a person has approved it."
        case RunFirst() | Continue():  # the former are said together, the latter are what happens anyway
            return ""


def _conditional_sentence(rule: Conditional) -> str:
    cases = [f"{tool} if it returned {value!r}" for value, tool in sorted(rule.child_output_mapping.items())]
    otherwise = "no tool" if rule.require_output_mapping else rule.default_child or "any tool"
    return f"Directly after {rule.tool_name}, call {', '.join(cases)}, {otherwise} otherwise."
