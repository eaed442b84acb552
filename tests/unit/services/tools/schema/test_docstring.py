"""The parts of a docstring."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.tools.schema.docstring import parse

GOOGLE = """Rolls a die.

    It is fair: mostly.

    Args:
        sides (int): How many sides.
        times (int, optional): How often: once
            if it is not said.

            Really.
        *rest: More.
        plain:
            On the next line.

    Returns:
        int: The number.

    Raises:
        ValueError: If it has no sides.

    Example:
        roll(6)
    """
SPHINX = """Rolls a die.

    :param sides: How many sides.
    :param int times: How often,
        at least once.
    :type sides: int
    :returns: The number.
    """
NUMPY = """Rolls a die.

    Parameters
    ----------
    sides : int
        How many sides.
    times, again : int
        How often.

    Returns
    -------
    int
        The number.
    """


def test_google() -> None:
    parsed = parse(GOOGLE)
    assert parsed.description == "Rolls a die.\n\nIt is fair: mostly.\n\nExample:\n    roll(6)"
    assert parsed.parameters == {
        "sides": "How many sides.",
        "times": "How often: once if it is not said. Really.",
        "rest": "More.",
        "plain": "On the next line.",
    }


def test_sphinx() -> None:
    parsed = parse(SPHINX)
    assert parsed.description == "Rolls a die."
    assert parsed.parameters == {"sides": "How many sides.", "times": "How often, at least once."}


def test_numpy() -> None:
    parsed = parse(NUMPY)
    assert parsed.description == "Rolls a die."
    assert parsed.parameters == {"sides": "How many sides.", "times": "How often.", "again": "How often."}


@pytest.mark.parametrize("heading", ["Args", "Arguments", "Parameters", "Params", "Attributes"])
def test_headings(heading: str) -> None:
    assert parse(f"Does.\n\n{heading}:\n  x: The x.").parameters == {"x": "The x."}


def test_text_after_a_section_is_told_again() -> None:
    parsed = parse("Does.\n\nArgs:\n  x: The x.\nAnd more.")
    assert (parsed.description, parsed.parameters) == ("Does.\n\nAnd more.", {"x": "The x."})


@given(st.text())
def test_any_text_has_parts(text: str) -> None:
    parsed = parse(text)
    assert all(isinstance(each, str) for each in [parsed.description, *parsed.parameters.values()])
