"""Which sources are tools, and what those that are none are told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import InvalidArgument
from services.tools.schema.source import Parameter, derive, function_of

TOOL = '''
import os
from enum import Enum

LIMIT = 3

class Size(Enum):
    S = "s"

def _help(x):
    yield x

def convert(amount: float, to: str = "EUR", *, size: Size | None = None) -> str:
    """Converts money.

    Rates are of today.

    Args:
        amount (float): How much,
            in dollars.
        to: Into what.
        size (Size, optional): Of the note.

    Returns:
        str: The amount with its currency.
    """
    def inner():
        yield 1
    return f"{amount} {to}"
'''


def refused(source: str) -> str:
    """What a source is refused for."""
    with pytest.raises(InvalidArgument) as caught:
        derive(source)
    (field,) = caught.value.fields
    assert field.field == "tool.python.source"
    return field.description


def test_a_tool_is_read_from_its_source() -> None:
    derived = derive(TOOL)
    assert (derived.name, derived.description) == ("convert", "Converts money.\n\nRates are of today.")
    assert derived.parameters == {
        "type": "object",
        "properties": {
            "amount": {"type": "number", "description": "How much, in dollars."},
            "to": {"type": "string", "description": "Into what.", "default": "EUR"},
            "size": {"type": "string", "enum": ["s"], "description": "Of the note."},
        },
        "required": ["amount"],
    }
    assert derived.nullable == {"size"}


def test_the_code_is_not_run() -> None:
    source = 'raise SystemExit\ndef tool():\n    """Does it."""\n'
    assert derive(source).name == "tool"


def test_a_function_may_be_async_and_decorated() -> None:
    assert derive('@cache\nasync def tool():\n    """Does it."""\n').parameters == {
        "type": "object",
        "properties": {},
        "required": [],
    }


def test_what_other_servers_inject_is_not_shown() -> None:
    source = (
        'def tool(self, agent_state: "AgentState", x: int):\n    """Does it.\n\n    Args:\n        x: The x.\n    """\n'
    )
    assert list(derive(source).parameters["properties"]) == ["x"]
    assert function_of(source).parameters == (
        Parameter("self", has_default=False, injected=True),
        Parameter("agent_state", has_default=False, injected=True),
        Parameter("x", has_default=False),
    )


def test_warnings_of_the_source_are_its_own() -> None:
    assert derive('def tool():\n    """Does it."""\n    return "\\d"\n').name == "tool"


def test_a_later_definition_takes_the_place_of_an_earlier_one() -> None:
    source = 'def tool(x):\n    pass\ndef tool():\n    """The second."""\n'
    assert derive(source).description == "The second."


@pytest.mark.parametrize(
    ("source", "told", "line"),
    [
        ("def tool(:\n  pass", "is not valid Python: invalid syntax", 1),
        ("x = 1\n  y = 2", "is not valid Python: unexpected indent", 2),
        ("def tool():\n\tx=1\n        y=2", "is not valid Python: inconsistent use of tabs", 3),
        ("-" * 100_000 + "1", "is nested too deeply", None),
        ("a" + ".b" * 50_000, "is nested too deeply", None),
        ("def tool(): '\0'", "must not contain a NUL character", None),
        ("", "must define a public function", None),
        ("x = 1", "must define a public function", None),
        ("def _tool():\n    '''Does it.'''", "must define a public function: the name '_tool' begins", 1),
        ("class A:\n    def tool(self):\n        '''Does it.'''", "must define a public function", None),
        (
            "def a():\n    '''A.'''\ndef b():\n    '''B.'''",
            "must define one public function and defines 2: 'a', 'b'",
            3,
        ),
        ("def tool():\n    pass", "has the function 'tool' without a docstring", 1),
        ("def tool():\n    ''' '''", "has the function 'tool' without a docstring", 1),
        ("def tool():\n    '''\n    Args:\n        x: y\n    '''", "has the function 'tool' without a docstring", 1),
        ("\ndef tool(x):\n    '''Does it.'''", "has the parameter 'x' of 'tool' without a type", 2),
        ("def tool(\n  x: int):\n    '''Does it.'''", "has the parameter 'x' of 'tool' without a description", 2),
        ("def tool(*xs: int):\n    '''Does it.'''", "has '*xs': a tool must name its parameters", 1),
        ("def tool(**xs: int):\n    '''Does it.'''", "has '**xs': a tool must name its parameters", 1),
        ("def tool(x: int, /):\n    '''Does it.'''", "has the positional-only parameter 'x'", 1),
        ("def tool():\n    '''Does it.'''\n    yield 1", "has the generator 'tool'", 1),
        ("async def tool():\n    '''Does it.'''\n    if x:\n        yield 1", "has the generator 'tool'", 1),
        (
            "def tool():\n    '''Does it.'''\n    return [(yield x) for x in []]",
            "is not valid Python|has the generator",
            None,
        ),
        (f"def {'t' * 49}():\n    '''Does it.'''", "a tool's name is 1 to 48 letters", 1),
        ("def tööl():\n    '''Does it.'''", "a tool's name is 1 to 48 letters", 1),
        (f"def tool({'x' * 65}: int):\n    '''Does it.'''", "names are 1 to 64 letters", 1),
        ("def tool(ü: int):\n    '''Does it.'''", "names are 1 to 64 letters", 1),
        ("def tool():\n    '''Does \\ud800 it.'''", "is not valid Unicode", 1),
        ("def tool():\n    '''Does \\0 it.'''", "contains NUL", 1),
    ],
)
def test_what_is_no_tool(source: str, told: str, line: int | None) -> None:
    complaint = refused(source)
    assert any(each in complaint for each in told.split("|")), complaint
    if line is not None:
        assert complaint.endswith(f"(line {line})")


@pytest.mark.parametrize(
    ("annotation", "told"),
    [
        ("bytes", "has the type 'bytes', which is neither a type that JSON can carry"),
        ("datetime", "has the type 'datetime'"),
        ("Order", "has the type 'Order'"),
        ("models.Order", "has the type 'models.Order'"),
        ("Callable[[int], int]", "has the type 'Callable[[int], int]'"),
        ("1", "has the type '1'"),
        ("'not a type'", "has an annotation that is not a type: 'not a type'"),
        ("dict[int, str]", "has a dict whose keys are not str"),
        ("Literal[b'x']", "has a Literal of something"),
        ("Literal[f()]", "has a Literal of something"),
        ("Plain", "has a parameter of the class 'Plain', which is neither a model"),
        ("Empty", "has the enum 'Empty' without members"),
        ("Odd", "has the enum 'Odd' with a member that is not a text or a number"),
        ("Loop", "has a type 'Loop' that is defined by itself"),
        ("A", "with a type that has no end"),
    ],
)
def test_types_that_json_cannot_carry(annotation: str, told: str) -> None:
    source = f'''
from enum import Enum
class Plain:
    x: int
class Empty(Enum):
    pass
class Odd(Enum):
    A = (1, 2)
class A(B):
    pass
class B(A):
    pass
Loop = list["Loop"]
def tool(x: {annotation}):
    """Does it.

    Args:
        x: The x.
    """
'''
    assert told in refused(source)


def test_few_words_cannot_make_a_schema_without_end() -> None:
    models = "\n".join(
        f"class M{number}(BaseModel):\n    a: M{number + 1}\n    b: M{number + 1}\n" for number in range(40)
    )
    tool = (
        'class M40(BaseModel):\n    x: int\ndef tool(x: M0):\n    """Does it.\n\n    Args:\n        x: The x.\n    """'
    )
    assert "too large to be a schema" in refused(f"{models}\n{tool}")


def test_deep_annotations_are_refused_or_read() -> None:
    deep = "list[" * 150 + "int" + "]" * 150
    source = f'def tool(x: {deep}):\n    """Does it.\n\n    Args:\n        x: The x.\n    """'
    assert derive(source).parameters["required"] == ["x"]


@given(st.text(max_size=200))
def test_any_text_is_a_tool_or_is_told_why_not(text: str) -> None:
    try:
        derive(text)
    except InvalidArgument as error:
        assert error.fields[0].field == "tool.python.source"  # noqa: PT017 - most texts raise, some may not


_WORDS = st.text(alphabet="abc xyz:()*,.", min_size=1, max_size=30)


@given(st.dictionaries(st.sampled_from("abcdef"), _WORDS, min_size=1))
def test_what_the_docstring_says_of_a_parameter_is_told(described: dict[str, str]) -> None:
    signature = ", ".join(f"{name}: int" for name in described)
    lines = "".join(f"        {name}: x{text}\n" for name, text in described.items())
    properties = derive(f"def tool({signature}):\n    '''Does it.\n\n    Args:\n{lines}    '''\n").parameters[
        "properties"
    ]
    told = {name: each["description"] for name, each in properties.items()}
    assert told == {name: " ".join(f"x{text}".split()) for name, text in described.items()}
