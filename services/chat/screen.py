"""Two streams with one cursor: what is said goes to stdout, what the program has to say goes to stderr."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TextIO

from rich.color import ColorSystem
from rich.console import Console
from rich.style import Style as RichStyle

if TYPE_CHECKING:
    from typing import Literal

    Style = Literal["plain", "dim", "bold", "red"]

# Control characters could move the cursor, and marks of writing direction could reorder what a person approves.
_CONTROLS: Final = [*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_VISIBLE: Final = {
    **{code: f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" for code in _CONTROLS},
    ord("\n"): "\n",
    ord("\t"): "\t",
    ord("\r"): "",
}


def printable(text: str) -> str:
    """The text with everything that a terminal would obey made visible."""
    return text.translate(_VISIBLE)


class Screen:
    """Writes text as it comes; colours only on a terminal."""

    def __init__(self, out: TextIO, err: TextIO) -> None:
        self._out = _Stream(out)
        self._err = _Stream(err)
        self._at_line_start = True

    def write(self, text: str, style: Style = "plain") -> None:
        """Append to what is said."""
        if not text:
            return
        self._out.write(printable(text), style)
        self._at_line_start = text.endswith("\n")

    def line(self, text: str, style: Style = "plain") -> None:
        """A line of its own in what is said."""
        self.end_line()
        self.write(f"{text}\n", style)

    def note(self, text: str) -> None:
        """Something about the program or the connection."""
        self._tell(f"({text})", "dim")

    def error(self, text: str) -> None:
        """Something that went wrong."""
        self._tell(f"bridle: {text}", "red")

    def prompt(self, text: str) -> None:
        """A question on stderr, where the answer is typed behind it."""
        self._err.write(printable(text), "plain")

    def end_line(self) -> None:
        """Make sure that what follows starts on a line of its own."""
        if not self._at_line_start:
            self.write("\n")

    def typed(self, *, ended: bool) -> None:
        """A person typed a line; without an end (Ctrl-C, Ctrl-D) the cursor is still in it."""
        self._at_line_start = ended

    def _tell(self, text: str, style: Style) -> None:
        self.end_line()
        self._err.write(f"{printable(text)}\n", style)


class _Stream:
    """Text byte for byte: rich says what the terminal can do, but its own printing would expand tabs and wrap."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        # Said outright, so that no variable of the environment can put escape codes into a file.
        console = Console(file=stream, force_terminal=stream.isatty())
        self._styled = console.is_terminal and not console.is_dumb_terminal and not console.no_color

    def write(self, text: str, style: Style) -> None:
        if self._styled and style != "plain":
            text = RichStyle.parse(style).render(text, color_system=ColorSystem.STANDARD)
        self._stream.write(text)
        self._stream.flush()
