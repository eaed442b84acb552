"""What each annotation becomes in the schema of the arguments."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.tools.schema.source import derive

PREAMBLE = '''
import enum
import typing as t
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import *
from pydantic import BaseModel, Field

class Color(str, enum.Enum):
    """A colour."""
    RED = "red"
    BLUE = "blue"
    _ignored = "x"

class Level(enum.IntEnum):
    LOW = enum.auto()
    HIGH = enum.auto()

class Word(enum.StrEnum):
    Yes = enum.auto()

class Base(BaseModel):
    """What all have.

    Attributes:
        id: which one
    """
    id: str

class Order(Base):
    model_config = {"extra": "forbid"}
    registry: ClassVar[dict] = {}
    count: int = Field(1, ge=1, le=9, description="how many")
    note: Optional[str] = None
    color: Color = Color.RED
    tags: list[str] = Field(default_factory=list)
    size: float = Field(..., gt=0)

class Node(BaseModel):
    value: int
    children: list["Node"] = []

@dataclass(frozen=True)
class Point:
    """A place."""
    x: float
    y: float = 0.0
    marks: list[int] = field(default_factory=list)

class Options(TypedDict, total=False):
    deep: Required[bool]
    name: str

class Reply(TypedDict):
    text: str
    extra: NotRequired[int]

class Pair(NamedTuple):
    left: int
    right: int = 0

Mode = Literal["fast", "slow"]
UserId = NewType("UserId", str)
'''

COLOR = {"type": "string", "enum": ["red", "blue"], "description": "A colour."}
POINT = {
    "type": "object",
    "properties": {
        "x": {"type": "number"},
        "y": {"type": "number", "default": 0.0},
        "marks": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["x"],
    "description": "A place.",
}


def parameters(signature: str, preamble: str = PREAMBLE) -> dict[str, Any]:
    source = f'{preamble}\ndef tool({signature}):\n    """Does it.\n\n    Args:\n        x: The x.\n    """\n'
    return derive(source).parameters


def schema_of(annotation: str) -> dict[str, Any]:
    """The schema of a parameter without the description that all have."""
    schema: dict[str, Any] = parameters(f"x: {annotation}")["properties"]["x"]
    assert schema["description"] == "The x."
    return {key: value for key, value in schema.items() if key != "description"}


def nested(annotation: str) -> dict[str, Any]:
    """The schema of an annotation where its own description counts."""
    schema: dict[str, Any] = schema_of(f"list[{annotation}]")["items"]
    return schema


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("str", {"type": "string"}),
        ("int", {"type": "integer"}),
        ("float", {"type": "number"}),
        ("bool", {"type": "boolean"}),
        ("'int'", {"type": "integer"}),
        ("Any", {}),
        ("t.Any", {}),
        ("object", {}),
        ("list", {"type": "array", "items": {}}),
        ("List[int]", {"type": "array", "items": {"type": "integer"}}),
        ("t.List['int']", {"type": "array", "items": {"type": "integer"}}),
        ("Sequence[str]", {"type": "array", "items": {"type": "string"}}),
        ("list[list[int]]", {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        ("set[str]", {"type": "array", "items": {"type": "string"}, "uniqueItems": True}),
        ("frozenset", {"type": "array", "items": {}, "uniqueItems": True}),
        ("tuple", {"type": "array", "items": {}}),
        ("Tuple[int, ...]", {"type": "array", "items": {"type": "integer"}}),
        (
            "tuple[int, str]",
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        ("dict", {"type": "object"}),
        ("Dict[str, Any]", {"type": "object"}),
        ("Mapping[str, int]", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("dict[Color, int]", {"type": "object", "additionalProperties": {"type": "integer"}}),
        ("Literal['a', 'b']", {"type": "string", "enum": ["a", "b"]}),
        ("Literal[1, 'b', True]", {"type": ["integer", "string", "boolean"], "enum": [1, "b", True]}),
        ("Literal[-1, 2]", {"type": "integer", "enum": [-1, 2]}),
        ("Literal[Color.RED]", {"type": "string", "enum": ["red"]}),
        ("Mode", {"type": "string", "enum": ["fast", "slow"]}),
        ("UserId", {"type": "string"}),
        ("Union[int, str]", {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ("int | str | float", {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "number"}]}),
        ("Union[int, int]", {"type": "integer"}),
        ("int | Any", {}),
        ("Color", {"type": "string", "enum": ["red", "blue"]}),
        ("Level", {"type": "integer", "enum": [1, 2]}),
        ("Word", {"type": "string", "enum": ["yes"]}),
        ("Annotated[int, Field(ge=0, le=10)]", {"type": "integer", "minimum": 0, "maximum": 10}),
        ("Annotated[str, Field(pattern='a+')]", {"type": "string", "pattern": "a+"}),
    ],
)
def test_annotations(annotation: str, expected: dict[str, Any]) -> None:
    assert schema_of(annotation) == expected


@pytest.mark.parametrize(
    "annotation", ["Optional[int]", "int | None", "None | int", "Union[int, None]", "'int | None'"]
)
def test_what_may_be_none_may_be_left_out(annotation: str) -> None:
    found = parameters(f"x: {annotation}")
    assert found["properties"]["x"] == {"type": "integer", "description": "The x."}
    assert found["required"] == []


def test_inside_a_value_none_is_said() -> None:
    assert nested("Optional[int]") == {"anyOf": [{"type": "integer"}, {"type": "null"}]}


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ("Color", COLOR),
        ("Point", POINT),
        (
            "Order",
            {
                "type": "object",
                "properties": {
                    "id": {"type": "string", "description": "which one"},
                    "count": {"type": "integer", "minimum": 1, "maximum": 9, "description": "how many", "default": 1},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                    "color": {**COLOR, "default": "red"},
                    "tags": {"type": "array", "items": {"type": "string"}},
                    "size": {"type": "number", "exclusiveMinimum": 0},
                },
                "required": ["id", "size"],
            },
        ),
        (
            "Options",
            {
                "type": "object",
                "properties": {"deep": {"type": "boolean"}, "name": {"type": "string"}},
                "required": ["deep"],
            },
        ),
        (
            "Reply",
            {
                "type": "object",
                "properties": {"text": {"type": "string"}, "extra": {"type": "integer"}},
                "required": ["text"],
            },
        ),
        (
            "Pair",
            {
                "type": "object",
                "properties": {"left": {"type": "integer"}, "right": {"type": "integer", "default": 0}},
                "required": ["left"],
            },
        ),
    ],
)
def test_classes(annotation: str, expected: dict[str, Any]) -> None:
    assert nested(annotation) == expected


def test_a_model_that_contains_itself_is_referred_to() -> None:
    found = parameters("x: Node")
    assert found["properties"]["x"] == {"$ref": "#/$defs/Node", "description": "The x."}
    children = {"type": "array", "items": {"$ref": "#/$defs/Node"}, "default": []}
    assert found["$defs"] == {
        "Node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "children": children},
            "required": ["value"],
        }
    }


@pytest.mark.parametrize(
    ("signature", "default"),
    [
        ("x: int = 3", 3),
        ("x: list = [1, 'a']", [1, "a"]),
        ("x: tuple = (1,)", [1]),
        ("x: Color = Color.RED", "red"),
        ("x: str = Color.BLUE.value", "blue"),
        ("*, x: bool = False", False),
    ],
)
def test_defaults_are_told(signature: str, default: object) -> None:
    found = parameters(signature)
    assert found["properties"]["x"]["default"] == default
    assert found["required"] == []


@pytest.mark.parametrize(
    "signature",
    ["x: int = None", "x: float = make()", "x: int = 10**400", "x: str = b'x'", "x: set = {1}", "x: int = X"],
)
def test_other_defaults_are_only_known_to_be_there(signature: str) -> None:
    found = parameters(signature)
    assert "default" not in found["properties"]["x"]
    assert found["required"] == []


@pytest.mark.parametrize("text", ["'told here'", "Field(description='told here')", "Doc('told here')"])
def test_a_description_may_stand_at_the_type(text: str) -> None:
    source = f'from typing import Annotated\ndef tool(y: Annotated[int, {text}]):\n    """Does it."""\n'
    assert derive(source).parameters["properties"]["y"] == {"type": "integer", "description": "told here"}


_ANNOTATIONS = st.recursive(
    st.sampled_from(["str", "int", "float", "bool", "Any", "list", "dict", "Color", "Order", "Point", "Mode", "None"]),
    lambda inner: st.one_of(
        inner.map(lambda a: f"list[{a}]"),
        inner.map(lambda a: f"Optional[{a}]"),
        inner.map(lambda a: f"dict[str, {a}]"),
        inner.map(lambda a: f"'{a}'" if "'" not in a else a),
        st.tuples(inner, inner).map(lambda pair: f"Union[{pair[0]}, {pair[1]}]"),
        st.tuples(inner, inner).map(lambda pair: f"tuple[{pair[0]}, {pair[1]}]"),
        inner.map(lambda a: f"Annotated[{a}, 'note']"),
    ),
    max_leaves=8,
)


@given(_ANNOTATIONS)
def test_any_nesting_is_a_schema_of_its_own(annotation: str) -> None:
    found = parameters(f"x: {annotation}")
    assert found == msgspec.json.decode(msgspec.json.encode(found)), "what is stored is what was derived"
    assert found["properties"]["x"]["description"] == "The x."
    assert found["required"] in ([], ["x"])
