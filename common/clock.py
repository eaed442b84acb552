"""Time as a dependency: aware UTC for what is stored, monotonic for what is measured."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What code that needs the time asks for, so that tests can own it."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, for durations."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time of day, aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never go backwards, for durations."""
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to: the double for tests and simulation."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0

    def now(self) -> datetime:
        """The start plus all that was advanced."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Seconds advanced since the start."""
        return self._elapsed

    def advance(self, seconds: float) -> None:
        """Let time pass; it never goes backwards."""
        if seconds < 0:
            raise ValueError(f"a clock cannot go back: {seconds}")
        self._elapsed += seconds
