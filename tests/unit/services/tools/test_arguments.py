"""What a model says against what it was shown."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.tools.arguments import Misfit, fit
from services.tools.schema.source import Derived, Function, derive, function_of

SOURCE = '''
from typing import *
from pydantic import BaseModel

class Item(BaseModel):
    sku: str
    count: int = 1
    parts: list["Item"] = []

def order(
    self, item: Item, agent_state: "AgentState", kind: Literal["now", "later"] = "now", note: Optional[str] = "none",
    *, limit: Optional[float], place: tuple[int, int] = (0, 0), extra: dict[str, int] = {}, either: int | bool = 1,
):
    """Orders.

    Args:
        item: What.
        kind: When.
        note: A note.
        limit: Most to pay.
        place: Where to.
        extra: More.
        either: One of them.
    """
'''


@pytest.fixture(scope="module")
def read() -> tuple[Function, Derived]:
    return function_of(SOURCE), derive(SOURCE)


def fitted(read: tuple[Function, Derived], arguments: dict[str, Any]) -> dict[str, Any]:
    function, derived = read
    return fit(arguments, derived.parameters, function, derived.nullable)


def test_what_is_left_out_and_what_is_injected(read: tuple[Function, Derived]) -> None:
    given = fitted(read, {"item": {"sku": "a"}})
    assert given == {"self": None, "agent_state": None, "limit": None, "item": {"sku": "a"}}


def test_null_is_none_where_it_may_be_and_nothing_elsewhere(read: tuple[Function, Derived]) -> None:
    given = fitted(read, {"item": {"sku": "a"}, "note": None, "kind": None, "limit": None})
    assert given == {"self": None, "agent_state": None, "item": {"sku": "a"}, "note": None, "limit": None}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "'item' is missing"),
        ({"item": None}, "'item' must be an object"),
        ({"item": 3}, "'item' must be an object"),
        ({"item": {}}, "'item' lacks 'sku'"),
        ({"item": {"sku": 1}}, "'item'.sku must be a text"),
        ({"item": {"sku": "a", "count": 1.5}}, "'item'.count must be a whole number"),
        ({"item": {"sku": "a", "count": True}}, "'item'.count must be a whole number"),
        ({"item": {"sku": "a", "parts": [{"sku": "b"}, {}]}}, "'item'.parts[1] lacks 'sku'"),
        ({"item": {"sku": "a"}, "kind": "soon"}, "'kind' must be one of 'now', 'later'"),
        ({"item": {"sku": "a"}, "limit": "much"}, "'limit' must be a number"),
        ({"item": {"sku": "a"}, "place": [1, "x"]}, "'place'[1] must be a whole number"),
        ({"item": {"sku": "a"}, "extra": {"y": "z"}}, "'extra'.y must be a whole number"),
        ({"item": {"sku": "a"}, "either": "x"}, "'either' fits none of its types"),
        ({"item": {"sku": "a"}, "colour": 1}, "'colour' is not a parameter"),
        ({"item": {"sku": "a"}, "agent_state": {}}, "'agent_state' is not a parameter"),
    ],
)
def test_what_does_not_fit(read: tuple[Function, Derived], arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(Misfit) as caught:
        fitted(read, arguments)
    assert str(caught.value) == f"the arguments do not fit: {told}"


def test_not_everything_that_is_wrong_is_told(read: tuple[Function, Derived]) -> None:
    with pytest.raises(Misfit, match=r"; and 15 more$"):
        fitted(read, {"item": {"sku": "a"}} | {f"x{number}": 1 for number in range(20)})


def test_a_schema_of_the_callers_own() -> None:
    function = function_of("def f(a, b=1, **more): pass")
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "c": False}, "required": ["b"]}
    assert fit({"a": None, "b": 2, "z": 3}, schema, function, frozenset("a")) == {"a": None, "b": 2, "z": 3}
    with pytest.raises(Misfit, match="'b' is missing"):
        fit({"a": "x"}, schema, function, frozenset())


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(["item", "kind", "note", "limit", "place", "extra", "x"]), _JSON))
def test_whatever_a_model_says_fits_or_is_told_why_not(arguments: dict[str, Any]) -> None:
    function, derived = function_of(SOURCE), derive(SOURCE)
    try:
        given_arguments = fit(arguments, derived.parameters, function, derived.nullable)
    except Misfit as error:
        assert str(error).startswith("the arguments do not fit: ")  # noqa: PT017 - either may happen
    else:
        needed = {each.name for each in function.parameters if not each.has_default}
        assert needed <= set(given_arguments) <= {each.name for each in function.parameters}
