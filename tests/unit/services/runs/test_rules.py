"""Tool rules: each alone, together, and what holds whatever the rules are."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from services.runs.rules import (
    Called,
    Offer,
    PrefillError,
    describe,
    is_terminal,
    missing_before_exit,
    needs_approval,
    nudge,
    offer,
    plain,
    prefilled,
    violation,
)


def calls(text: str) -> list[Called]:
    """`"a b:yes"` is a call of a that returned nothing, then one of b that returned yes."""
    return [Called(name, output) for name, _, output in (word.partition(":") for word in text.split())]


def must(names: str) -> Offer:
    return Offer(tuple(names), forced=True)


def may(names: str) -> Offer:
    return Offer(tuple(names), forced=False)


PICK = Conditional("a", {"yes": "b", "no": "c"})
PICK_OR_D = Conditional("a", {"yes": "b"}, default_child="d")
PICK_STRICTLY = Conditional("a", {"yes": "b"}, default_child="d", require_output_mapping=True)


@pytest.mark.parametrize(
    ("rules", "history", "expected"),
    [
        pytest.param([], "", may("abcd"), id="no rules"),
        pytest.param([Terminal("a"), Continue("b"), RequiresApproval("c")], "a", may("abcd"), id="rules of no set"),
        pytest.param([RequiredBeforeExit("a")], "", may("abcd"), id="required restricts nothing"),
        # run first
        pytest.param([RunFirst("b")], "", must("b"), id="first alone"),
        pytest.param([RunFirst("c"), RunFirst("b")], "", must("bc"), id="any of several first"),
        pytest.param([RunFirst("b")], "a", may("abcd"), id="first is over after any call"),
        pytest.param([RunFirst("x")], "", may("abcd"), id="first is not attached"),
        pytest.param([RunFirst("x"), RunFirst("b")], "", must("b"), id="one first is not attached"),
        # child
        pytest.param([ChildTools("a", ("c", "b"))], "a", must("bc"), id="children after the tool"),
        pytest.param([ChildTools("a", ("b",))], "", may("abcd"), id="no children before anything"),
        pytest.param([ChildTools("a", ("b",))], "a b", may("abcd"), id="children only directly after"),
        pytest.param([ChildTools("a", ("x", "b"))], "a", must("b"), id="attached children only"),
        pytest.param([ChildTools("a", ("x",))], "a", may("abcd"), id="no child is attached"),
        pytest.param([ChildTools("x", ("b",))], "x", may("abcd"), id="tool is no longer attached"),
        pytest.param([ChildTools("a", ("a",))], "a", must("a"), id="its own child"),
        # parent
        pytest.param([ParentTools("a", ("b", "c"))], "", may("ad"), id="children wait for the parent"),
        pytest.param([ParentTools("a", ("b", "c"))], "a", must("bc"), id="then only they"),
        pytest.param([ParentTools("a", ("b", "c"))], "a b", may("ad"), id="only directly after the parent"),
        pytest.param([ParentTools("x", ("b", "c"))], "", may("abcd"), id="a missing parent locks nothing"),
        pytest.param([ParentTools("a", ("x",))], "a", may("abcd"), id="a missing child forces nothing"),
        # conditional
        pytest.param([PICK], "", may("abcd"), id="nothing returned yet"),
        pytest.param([PICK], "a:yes", must("b"), id="picked"),
        pytest.param([PICK], "a:no", must("c"), id="picked the other"),
        pytest.param([PICK], "a:Yes", may("abcd"), id="text is compared exactly; any tool without a match"),
        pytest.param([PICK], "a:yes d", may("abcd"), id="only directly after"),
        pytest.param([PICK], "d:yes", may("abcd"), id="another tool's return"),
        pytest.param([PICK_OR_D], "a:maybe", must("d"), id="default"),
        pytest.param([PICK_OR_D], "a:yes", must("b"), id="match before default"),
        pytest.param([PICK_STRICTLY], "a:yes", must("b"), id="strict with a match"),
        pytest.param([PICK_STRICTLY], "a:maybe", may(""), id="strict without a match"),
        pytest.param([PICK_STRICTLY], "a:maybe d", may("abcd"), id="strict only directly after"),
        pytest.param([Conditional("a", {"yes": "x"})], "a:yes", may("abcd"), id="picked is not attached"),
        pytest.param([Conditional("x", {"y": "b"}, "", True)], "x:n", may("abcd"), id="strict, not attached"),
        # max count
        pytest.param([MaxCount("a", 2)], "a", may("abcd"), id="each call counts once"),
        pytest.param([MaxCount("a", 2)], "a b a", may("bcd"), id="used up"),
        pytest.param([MaxCount("a", 1), MaxCount("a", 3)], "a", may("bcd"), id="the lower limit counts"),
        pytest.param([MaxCount("x", 1)], "x", may("abcd"), id="count of what is not attached"),
    ],
)
def test_one_kind_of_rule(rules: list[ToolRule], history: str, expected: Offer) -> None:
    assert offer(rules, list("abcd"), calls(history)) == expected


@pytest.mark.parametrize(
    ("rules", "history", "expected"),
    [
        pytest.param([RunFirst("b"), ParentTools("a", ("b",))], "", must("b"), id="first before parent"),
        pytest.param([RunFirst("b"), ChildTools("b", ("c",))], "b", must("c"), id="first, then its child"),
        pytest.param([RunFirst("b"), MaxCount("b", 1)], "b", may("acd"), id="first once"),
        pytest.param([ChildTools("a", ("b", "c")), ChildTools("a", ("c", "d"))], "a", must("c"), id="intersection"),
        pytest.param(
            [ChildTools("a", ("b",)), ChildTools("a", ("c",))], "a", may("abcd"), id="contradiction is lifted"
        ),
        pytest.param([ChildTools("a", ("b", "c")), PICK], "a:no", must("c"), id="child and conditional"),
        pytest.param([ChildTools("a", ("b",)), PICK], "a:maybe", must("b"), id="child and no match"),
        pytest.param([ChildTools("a", ("c",)), PICK_STRICTLY], "a:maybe", may(""), id="child and strict: nothing"),
        pytest.param([ChildTools("a", ("b", "c")), MaxCount("b", 1)], "b a", must("c"), id="a used-up child"),
        pytest.param([ChildTools("a", ("b",)), MaxCount("b", 1)], "b a", may("acd"), id="the only child is used up"),
        pytest.param([PICK, MaxCount("b", 1)], "b a:yes", may("acd"), id="the picked tool is used up"),
        pytest.param([ParentTools("a", ("b",)), MaxCount("b", 1)], "b a", may("acd"), id="no way round the count"),
        pytest.param([ParentTools("a", ("b",)), MaxCount("a", 1)], "a b", may("cd"), id="no way round the parent"),
        pytest.param(
            [ChildTools("a", ("b",)), ParentTools("c", ("b",))], "a", may("acd"), id="child of another parent"
        ),
        pytest.param([ParentTools("a", ("c",)), ParentTools("b", ("c",))], "", may("abd"), id="two parents, neither"),
        pytest.param([ParentTools("a", ("c",)), ParentTools("b", ("c",))], "a", must("c"), id="two parents, one"),
        pytest.param([ParentTools("a", ("c",)), ParentTools("b", ("c",))], "b", must("c"), id="two parents, other"),
        pytest.param([ParentTools("a", ("b",)), ParentTools("b", ("a",))], "", may("cd"), id="parents of each other"),
        pytest.param([ChildTools("a", ("x",)), ChildTools("a", ("b",))], "a", must("b"), id="an empty rule lifts none"),
        pytest.param([RunFirst("a"), MaxCount("a", 0)], "", may("bcd"), id="count before first"),
        pytest.param([MaxCount(name, 1) for name in "abcd"], "a b c d", may(""), id="all used up"),
    ],
)
def test_rules_together(rules: list[ToolRule], history: str, expected: Offer) -> None:
    assert offer(rules, list("abcd"), calls(history)) == expected


def test_an_offer_keeps_the_attached_order_and_names_a_tool_once() -> None:
    assert offer([ChildTools("a", ("a", "b", "c"))], list("cbacb"), calls("a")) == must("cba")


def test_no_tools_are_offered_where_none_is_attached() -> None:
    assert offer([RunFirst("a"), PICK], [], []) == may("")


@pytest.mark.parametrize(
    ("key", "output", "matches"),
    [
        ("true", "true", True),
        ("true", "True", True),
        ("True", "true", True),
        ("false", " false\n", True),
        ("true", "TRUE", False),
        ("true", "1", False),
        ("1", "true", False),
        ("0", "False", False),
        ("3", "3", True),
        ("3", "3.0", True),
        ("3", "3e0", True),
        ("3", "4", False),
        ("3", '"3"', False),
        ("3", "[3]", False),
        ("-0", "0", True),
        ("2.5", "2.50", True),
        ("2.5", "25e-1", True),
        ("2.5", "2,5", False),
        ("007", "7", False),
        ("007", "007", True),
        ("0.1", "0.1000000000000000055", False),
        ("9007199254740993", "9007199254740992", False),
        ("1e400", "2e400", False),
        ("1e99999999999999999999", "1e99999999999999999999", True),
        ("1e99999999999999999999", "1.0e99999999999999999999", False),
        ("NaN", "NaN", True),
        ("NaN", "nan", False),
        ("٣", "3", False),
        ("null", "None", False),
        ("", "", True),
        ("", " ", False),
        ("yes", " yes", False),
        ("yes", "9" * 5000, False),
        ("1", "[" * 100_000, False),
    ],
)
def test_a_return_is_compared_as_text_or_as_the_same_value(key: str, output: str, matches: bool) -> None:
    rules = [Conditional("a", {key: "b"}, default_child="c")]
    assert offer(rules, list("abc"), [Called("a", output)]) == must("b" if matches else "c")


@pytest.mark.parametrize("mapping", [{"1": "b", "1.0": "c"}, {"1.0": "c", "1": "b"}])
@pytest.mark.parametrize(("output", "expected"), [("1", "b"), ("1.0", "c"), ("1.00", "b")])
def test_the_same_text_wins_and_the_order_of_the_map_does_not_matter(
    mapping: dict[str, str], output: str, expected: str
) -> None:
    assert offer([Conditional("a", mapping)], list("abc"), [Called("a", output)]) == must(expected)


def test_a_disallowed_call_is_answered_with_what_is_allowed() -> None:
    rules = [ChildTools("a", ("b", "c"))]
    assert violation(rules, list("abcd"), calls("a"), "d") == (
        "[ToolConstraintError] Cannot call d, valid tools include: ['b', 'c']"
    )
    assert violation(rules, list("abcd"), calls("a"), "b") is None


def test_an_unknown_tool_is_disallowed() -> None:
    assert violation([], ["a"], [], "x") == "[ToolConstraintError] Cannot call x, valid tools include: ['a']"


def test_calls_of_one_turn_are_judged_one_after_the_other() -> None:
    rules: list[ToolRule] = [MaxCount("a", 1), ParentTools("b", ("c",))]
    assert violation(rules, list("abc"), calls(""), "a") is None
    assert violation(rules, list("abc"), calls("a"), "a") is not None
    assert violation(rules, list("abc"), calls("a"), "c") is not None
    assert violation(rules, list("abc"), calls("a b"), "c") is None


def test_approval_and_terminal_are_about_their_own_tool() -> None:
    rules: list[ToolRule] = [RequiresApproval("a"), Terminal("b")]
    assert [needs_approval(rules, name) for name in "abc"] == [True, False, False]
    assert [is_terminal(rules, name) for name in "abc"] == [False, True, False]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([], True),
        ([RequiresApproval("a"), Continue("b")], True),
        ([RunFirst("a")], False),
        ([Terminal("a")], False),
        ([ChildTools("a", ("b",))], False),
        ([ParentTools("a", ("b",))], False),
        ([PICK], False),
        ([RequiredBeforeExit("a")], False),
        ([RequiresApproval("a"), MaxCount("a", 1)], False),
    ],
)
def test_plain(rules: list[ToolRule], expected: bool) -> None:
    assert plain(rules) is expected


@pytest.mark.parametrize(
    ("history", "missing"), [("", ("b", "a")), ("c", ("b", "a")), ("b", ("a",)), ("a", ("b",)), ("b a b", ())]
)
def test_required_tools_are_missed_until_called(history: str, missing: tuple[str, ...]) -> None:
    rules = [RequiredBeforeExit(name) for name in "bxab"]
    assert missing_before_exit(rules, list("abc"), calls(history)) == missing


def test_nudge() -> None:
    assert nudge(("a",)) == "ToolRuleViolated: You must call a at least once to exit the loop."
    assert nudge(("a", "b")) == "ToolRuleViolated: You must call a, b at least once to exit the loop."


FIRST = RunFirst("a", {"x": 1, "o": {"k": None}})
CHILD = ChildTools("a", ("b", "c"), {"b": {"x": 2}, "d": {"x": 3}})


@pytest.mark.parametrize(
    ("rules", "name", "history", "arguments", "expected"),
    [
        pytest.param([FIRST], "a", "", '{"y": 2}', {"y": 2, "x": 1, "o": {"k": None}}, id="first adds"),
        pytest.param([FIRST], "a", "", '{"x": 9, "o": {"z": 1}}', {"x": 1, "o": {"k": None}}, id="first replaces"),
        pytest.param([FIRST], "a", "", "", {"x": 1, "o": {"k": None}}, id="no arguments"),
        pytest.param([CHILD], "b", "a", '{"y":"é"}', {"y": "é", "x": 2}, id="child"),
        pytest.param([CHILD], "b", "c a", "{}", {"x": 2}, id="child of the last call"),
        pytest.param(
            [CHILD, ChildTools("a", ("b",), {"b": {"x": 7, "z": 8}})], "b", "a", "{}", {"x": 7, "z": 8}, id="later wins"
        ),
    ],
)
def test_prefill(rules: list[ToolRule], name: str, history: str, arguments: str, expected: dict[str, Any]) -> None:
    assert json.loads(prefilled(rules, name, calls(history), arguments)) == expected


@pytest.mark.parametrize(
    ("rules", "name", "history"),
    [
        pytest.param([], "a", "", id="no rules"),
        pytest.param([RunFirst("a")], "a", "", id="first without arguments"),
        pytest.param([RunFirst("a", {})], "a", "", id="first with empty arguments"),
        pytest.param([FIRST], "b", "", id="another tool"),
        pytest.param([FIRST], "a", "b", id="not the first call"),
        pytest.param([FIRST], "a", "a", id="the second call of the first tool"),
        pytest.param([CHILD], "b", "", id="child without its parent"),
        pytest.param([CHILD], "b", "a c", id="child not directly after"),
        pytest.param([CHILD], "c", "a", id="child without arguments"),
        pytest.param([CHILD], "d", "a", id="arguments of what is no child"),
        pytest.param([ChildTools("a", ("b",))], "b", "a", id="no child has arguments"),
    ],
)
@pytest.mark.parametrize("arguments", ['{ "x" :1.0}', "not json", ""])
def test_without_a_prefill_not_a_byte_changes(rules: list[ToolRule], name: str, history: str, arguments: str) -> None:
    assert prefilled(rules, name, calls(history), arguments) == arguments


def test_a_prefill_leaves_the_other_values_as_the_model_wrote_them() -> None:
    written = '{"f": 1.10, "n": 123456789012345678901234567890, "x": 5}'
    result = prefilled([RunFirst("a", {"x": 1})], "a", [], written)
    assert result == '{"f":1.10,"n":123456789012345678901234567890,"x":1}'


@pytest.mark.parametrize(
    "arguments", ["[]", "null", "1", '{"y":', '{"y": 1} x', '{"y": NaN}', '{"y": "\ud800"}', '{"y": ' + "[" * 100_000]
)
def test_a_prefill_of_what_is_no_object_is_an_error(arguments: str) -> None:
    with pytest.raises(PrefillError, match="arguments of a are not a JSON object"):
        prefilled([FIRST], "a", [], arguments)


ALL_KINDS: list[ToolRule] = [
    RequiresApproval("a"),
    Terminal("d"),
    RequiredBeforeExit("c"),
    MaxCount("b", 2),
    MaxCount("a", 1),
    PICK,
    PICK_OR_D,
    PICK_STRICTLY,
    ParentTools("a", ("b", "c")),
    ChildTools("b", ("c", "d")),
    RunFirst("b"),
    RunFirst("a", {"x": 1}),
    Continue("a"),
]


def test_describe_says_every_rule() -> None:
    assert describe(ALL_KINDS).splitlines() == [
        "Rules for calling tools:",
        "- The first tool you call must be a or b.",
        "- A call of a waits until a person has approved it.",
        "- After d you are done.",
        "- Call a at most 1 time.",
        "- Call b at most 2 times.",
        "- Call b or c only directly after a, and then nothing else.",
        "- Call c at least once before you finish.",
        "- Directly after a, call b if it returned 'yes', d otherwise.",
        "- Directly after a, call b if it returned 'yes', no tool otherwise.",
        "- Directly after a, call c if it returned 'no', b if it returned 'yes', any tool otherwise.",
        "- Directly after b, call c or d.",
    ]


@pytest.mark.parametrize("rules", [[], [Continue("a")]])
def test_describe_is_silent_where_there_is_nothing_to_say(rules: list[ToolRule]) -> None:
    assert describe(rules) == ""


@given(st.permutations(ALL_KINDS))
def test_describe_does_not_depend_on_the_order_of_rules(rules: list[ToolRule]) -> None:
    assert describe(rules) == describe([*ALL_KINDS, *rules])


NAMES = st.sampled_from("abcdef")
OUTPUTS = st.sampled_from(["", "yes", "no", "1", "1.0", "true", "True"])
CHILDREN = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
RULES: st.SearchStrategy[list[ToolRule]] = st.lists(
    st.one_of(
        st.builds(RunFirst, NAMES),
        st.builds(Terminal, NAMES),
        st.builds(Continue, NAMES),
        st.builds(ChildTools, NAMES, CHILDREN),
        st.builds(ParentTools, NAMES, CHILDREN),
        st.builds(Conditional, NAMES, st.dictionaries(OUTPUTS, NAMES, min_size=1), st.just("") | NAMES, st.booleans()),
        st.builds(RequiredBeforeExit, NAMES),
        st.builds(MaxCount, NAMES, st.integers(0, 3)),
        st.builds(RequiresApproval, NAMES),
    ),
    max_size=8,
)
ATTACHED = st.lists(NAMES, unique=True)
HISTORY = st.lists(st.builds(Called, NAMES, OUTPUTS), max_size=8)


@given(RULES, ATTACHED, HISTORY)
def test_an_offer_is_attached_tools_in_their_order(
    rules: list[ToolRule], attached: list[str], history: list[Called]
) -> None:
    result = offer(rules, attached, history)
    assert list(result.names) == [name for name in attached if name in result.names]
    assert result.names or not result.forced


@given(RULES, ATTACHED, HISTORY, st.randoms(use_true_random=False))
def test_an_offer_does_not_depend_on_the_order_of_rules(
    rules: list[ToolRule], attached: list[str], history: list[Called], random: Any
) -> None:
    expected = offer(rules, attached, history)
    random.shuffle(rules)
    assert offer([*rules, *rules], attached, history) == expected


@given(RULES, ATTACHED, HISTORY)
def test_prohibitions_hold_whatever_the_other_rules(
    rules: list[ToolRule], attached: list[str], history: list[Called]
) -> None:
    names = offer(rules, attached, history).names
    count = Counter(call.name for call in history)
    assert not [r for r in rules if isinstance(r, MaxCount) and r.tool_name in names and count[r.tool_name] >= r.limit]
    for name in names if history else ():
        parents = {
            r.tool_name for r in rules if isinstance(r, ParentTools) and r.tool_name in attached and name in r.children
        }
        assert not parents or history[-1].name in parents


@given(RULES, ATTACHED, HISTORY)
def test_rules_about_tools_that_are_not_attached_change_nothing(
    rules: list[ToolRule], attached: list[str], history: list[Called]
) -> None:
    relevant = [rule for rule in rules if rule.tool_name in attached]
    assert offer(rules, attached, history) == offer(relevant, attached, history)


@given(RULES, ATTACHED, HISTORY)
def test_only_a_prohibition_or_a_strict_conditional_takes_every_tool_away(
    rules: list[ToolRule], attached: list[str], history: list[Called]
) -> None:
    lenient = [
        rule
        for rule in rules
        if not isinstance(rule, MaxCount | ParentTools)
        and not (isinstance(rule, Conditional) and rule.require_output_mapping)
    ]
    assert bool(offer(lenient, attached, history).names) == bool(attached)


@given(RULES, ATTACHED, HISTORY)
def test_rules_without_a_set_offer_everything(
    rules: list[ToolRule], attached: list[str], history: list[Called]
) -> None:
    free = [r for r in rules if isinstance(r, Terminal | Continue | RequiredBeforeExit | RequiresApproval)]
    assert offer(free, attached, history) == Offer(tuple(attached), forced=False)


@given(RULES, ATTACHED, HISTORY, NAMES)
def test_a_call_is_allowed_exactly_if_it_is_offered(
    rules: list[ToolRule], attached: list[str], history: list[Called], name: str
) -> None:
    allowed = offer(rules, attached, history).names
    assert (violation(rules, attached, history, name) is None) == (name in allowed)


@given(RULES, ATTACHED, st.data())
def test_a_model_that_takes_what_is_offered_keeps_the_rules(
    rules: list[ToolRule], attached: list[str], data: st.DataObject
) -> None:
    history: list[Called] = []
    while len(history) < 12 and (names := offer(rules, attached, history).names):
        history.append(Called(data.draw(st.sampled_from(names)), data.draw(OUTPUTS)))
    assert_kept(rules, attached, [call.name for call in history])


def assert_kept(rules: Sequence[ToolRule], attached: Sequence[str], called: Sequence[str]) -> None:
    never = {r.tool_name for r in rules if isinstance(r, MaxCount) and r.limit == 0}
    first = {r.tool_name for r in rules if isinstance(r, RunFirst) and r.tool_name in attached} - never
    assert not called or not first or called[0] in first
    for rule in rules:
        if isinstance(rule, MaxCount):
            assert called.count(rule.tool_name) <= rule.limit


@given(RULES, ATTACHED, HISTORY)
def test_what_is_missing_is_required_attached_and_uncalled(
    rules: list[ToolRule], attached: list[str], history: list[Called]
) -> None:
    missing = missing_before_exit(rules, attached, history)
    required = {r.tool_name for r in rules if isinstance(r, RequiredBeforeExit)}
    assert set(missing) == (required & set(attached)) - {call.name for call in history}
    assert len(missing) == len(set(missing))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=4)


@given(OBJECTS, OBJECTS)
def test_a_prefill_is_the_model_s_object_with_the_rule_s_on_top(written: dict[str, Any], args: dict[str, Any]) -> None:
    expected = {**written, **args}
    assert json.loads(prefilled([RunFirst("a", args)], "a", [], json.dumps(written))) == expected
    child = ChildTools("a", ("b",), {"b": args})
    assert json.loads(prefilled([child], "b", calls("a"), json.dumps(written))) == expected
