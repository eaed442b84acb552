"""The screen: plain in a file, careful with what a model or a tool may say."""

import io

import pytest

from services.chat.screen import Screen, printable


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_file_gets_no_escape_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    out, err = io.StringIO(), io.StringIO()
    screen = Screen(out, err)
    screen.write("hel", "bold")
    screen.write("lo", "dim")
    screen.note("a note")
    screen.error("a problem")
    assert out.getvalue() == "hello\n"
    assert err.getvalue() == "(a note)\nbridle: a problem\n"


def test_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out = Terminal()
    Screen(out, io.StringIO()).write("quiet", "dim")
    assert out.getvalue() == "\x1b[2mquiet\x1b[0m"


def test_text_is_written_as_it_is() -> None:
    out = io.StringIO()
    screen = Screen(out, io.StringIO())
    text = "  two spaces\tand a tab, [bold]markup[/bold] :smile: " + "long " * 100 + "\n\n"
    for character in text:
        screen.write(character)
    assert out.getvalue() == text


def test_lines_and_notes_start_on_a_line_of_their_own() -> None:
    out = io.StringIO()
    screen = Screen(out, io.StringIO())
    screen.line("one")
    screen.write("two")
    screen.line("three")
    screen.write("four")
    screen.end_line()
    screen.end_line()
    assert out.getvalue() == "one\ntwo\nthree\nfour\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünïcode 🐎\n\t", "plain ünïcode 🐎\n\t"),
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J\x07\x00\x7f", "\\x9b2J\\x07\\x00\\x7f"),
        ("safe\rrm -rf", "saferm -rf"),
        ("abc\u202ecba\u2066", "abc\\u202ecba\\u2066"),
    ],
)
def test_what_a_terminal_would_obey_is_made_visible(text: str, shown: str) -> None:
    assert printable(text) == shown
