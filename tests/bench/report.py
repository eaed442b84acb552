"""Figures: what a scenario found, as a table for people and as JSON for programs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Cell = str | float | int | None


@dataclass
class Table:
    """What one scenario found. Every row has the same columns."""

    name: str
    about: str
    rows: list[dict[str, Cell]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, **cells: Cell) -> None:
        """One more row; an underscore in a column's name is shown as a space."""
        self.rows.append({name.replace("_", " "): value for name, value in cells.items()})

    def text(self) -> str:
        """For a terminal, and for a fixed-width block of a document."""
        lines = [f"{self.name}: {self.about}", *_grid(self.rows), *(f"  {note}" for note in self.notes)]
        return "\n".join(lines) + "\n"


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that this percentage of all values does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def spread_ms(seconds: Sequence[float], prefix: str = "") -> dict[str, Cell]:
    """The columns p50, p99 of times that were measured in seconds."""
    return {
        f"{prefix}p50_ms": percentile(seconds, 50) * 1e3,
        f"{prefix}p99_ms": percentile(seconds, 99) * 1e3,
    }


def _grid(rows: Sequence[Mapping[str, Cell]]) -> list[str]:
    if not rows:
        return []
    lines = [list(rows[0]), *([_shown(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return ["  " + "  ".join(_aligned(cell, width, n) for n, (cell, width) in enumerate(zip(line, widths, strict=True)))
            for line in lines]  # fmt: skip


def _aligned(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column == 0 else cell.rjust(width)


def _shown(value: Cell) -> str:
    if value is None:
        return "-"
    if not isinstance(value, float):
        return str(value)
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
