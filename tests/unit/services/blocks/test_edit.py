"""How a block's text is changed."""

import pytest

from services.blocks.edit import EditRefused, inserted, replaced, require_room

VALUE = "one\ntwo\nthree"


@pytest.mark.parametrize(
    ("value", "line", "expected"),
    [
        (VALUE, -1, "one\ntwo\nthree\nX"),
        (VALUE, 3, "one\ntwo\nthree\nX"),
        (VALUE, 0, "X\none\ntwo\nthree"),
        (VALUE, 1, "one\nX\ntwo\nthree"),
        ("", -1, "X"),
        ("", 0, "X"),
    ],
)
def test_text_goes_after_a_line(value: str, line: int, expected: str) -> None:
    assert inserted(value, "X", line) == expected


@pytest.mark.parametrize(("value", "line"), [(VALUE, 4), (VALUE, -2), ("", 1)])
def test_a_line_that_is_not_there_is_named(value: str, line: int) -> None:
    with pytest.raises(EditRefused, match=f"insert_line is {line}, but"):
        inserted(value, "X", line)


def test_the_one_place_is_changed() -> None:
    assert replaced(VALUE, "two\nth", "2 th") == "one\n2 three"
    assert replaced(VALUE, "\ntwo", "") == "one\nthree"


def test_a_place_must_be_there_once() -> None:
    with pytest.raises(EditRefused, match="was not found"):
        replaced(VALUE, "Two", "x")
    with pytest.raises(EditRefused, match="occurs 2 times, on lines 1, 3"):
        replaced("e\nx\ne", "e", "x")
    with pytest.raises(EditRefused, match="is empty"):
        replaced(VALUE, "", "x")


def test_there_must_be_room() -> None:
    require_room("x" * 10, 10)
    with pytest.raises(EditRefused, match="11 characters, and its limit is 10"):
        require_room("x" * 11, 10)
