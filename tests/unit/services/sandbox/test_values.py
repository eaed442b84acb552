"""Between JSON and the types of a function."""

import dataclasses
import datetime
import decimal
import enum
import json
import uuid
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict, Union

import pytest
from pydantic import BaseModel

from services.sandbox.inside.values import plain, typed


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Item(BaseModel):
    sku: str
    color: Color = Color.RED


@dataclasses.dataclass
class Point:
    x: float
    next: Optional["Point"] = None


class Pair(NamedTuple):
    left: int
    color: Color


class Reply(TypedDict):
    item: Item


UserId = NewType("UserId", str)


def made(annotation: Any, value: Any) -> Any:
    def function(x: Any) -> None: ...

    function.__annotations__["x"] = annotation
    return typed(function, {"x": value})["x"]


@pytest.mark.parametrize(
    ("annotation", "value", "expected"),
    [
        (str, "a", "a"),
        (Color, "red", Color.RED),
        (Level, 1, Level.LOW),
        ("Color", "red", Color.RED),
        (Color | None, None, None),
        (Color | None, "red", Color.RED),
        (Union[int, Color], "red", Color.RED),  # noqa: UP007 - as people write it
        (Color | str, "blue", "blue"),
        (Item, {"sku": "a", "color": "red"}, Item(sku="a")),
        (list[Item], [{"sku": "a"}], [Item(sku="a")]),
        (list["Item"], [{"sku": "a"}], [Item(sku="a")]),
        (dict[str, Item], {"k": {"sku": "a"}}, {"k": Item(sku="a")}),
        (dict[Color, int], {"red": 1}, {Color.RED: 1}),
        (str | Item, {"sku": "a"}, Item(sku="a")),
        (Point, {"x": 1, "next": {"x": 2}}, Point(1.0, Point(2.0))),
        (Pair, {"left": 1, "color": "red"}, Pair(1, Color.RED)),
        (Reply, {"item": {"sku": "a"}}, {"item": Item(sku="a")}),
        (set[int], [1, 1], {1}),
        (frozenset, [1], frozenset({1})),
        (tuple[int, Color], [1, "red"], (1, Color.RED)),
        (tuple[float, ...], [1], (1.0,)),
        (tuple, [1], (1,)),
        (list, [1], [1]),
        (list[int] | str, [1.0], [1]),
        (Annotated[Color, "note"], "red", Color.RED),
        (Literal[Color.RED], "red", Color.RED),
        (Literal["red"], "red", "red"),
        (UserId, "u", "u"),
        (float, 1, 1.0),
        (int, 2.0, 2),
        (bool, True, True),
        (Any, {"a": 1}, {"a": 1}),
        ("NotThere", {"a": 1}, {"a": 1}),
        (dict, {"a": 1}, {"a": 1}),
    ],
)
def test_arguments_become_what_is_declared(annotation: Any, value: Any, expected: Any) -> None:
    found = made(annotation, value)
    assert found == expected
    assert type(found) is type(expected)


def test_one_annotation_that_cannot_be_read_does_not_hide_the_others() -> None:
    def function(agent_state: "AgentState", color: Color, free) -> None: ...  # type: ignore  # noqa: F821, PGH003

    assert typed(function, {"agent_state": None, "color": "red", "free": 1, "more": 2}) == {
        "agent_state": None,
        "color": Color.RED,
        "free": 1,
        "more": 2,
    }


def test_what_is_wrapped_is_looked_at() -> None:
    def twice(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(**arguments: Any) -> Any:
            return function(**arguments)

        return wrapper

    @twice
    def function(color: Color) -> None: ...

    assert typed(function, {"color": "red"}) == {"color": Color.RED}


def test_a_value_that_is_none_of_an_enum_is_an_error_of_the_call() -> None:
    with pytest.raises(ValueError, match="'blue' is not a valid Color"):
        made(Color, "blue")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Item(sku="a"), {"sku": "a", "color": "red"}),
        ([Color.RED, Level.LOW], ["red", 1]),
        (Point(1.0, Point(2.0)), {"x": 1.0, "next": {"x": 2.0, "next": None}}),
        ({1}, [1]),
        (datetime.date(2026, 11, 1), "2026-11-01"),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=0), "00000000-0000-0000-0000-000000000000"),
    ],
)
def test_values_become_json(value: Any, expected: Any) -> None:
    assert json.loads(json.dumps(value, default=plain)) == expected


def test_what_is_not_json_says_what_it_is() -> None:
    with pytest.raises(TypeError, match="an object of type bytes is not JSON"):
        json.dumps(b"x", default=plain)
