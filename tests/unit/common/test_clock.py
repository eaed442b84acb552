"""common/clock.py"""

from datetime import UTC, datetime, timedelta

import pytest

from common.clock import ManualClock, SystemClock


def test_the_system_clock_is_aware_and_in_utc() -> None:
    clock = SystemClock()
    assert clock.now().tzinfo is UTC
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    assert clock.monotonic() <= clock.monotonic()


def test_a_manual_clock_moves_only_when_told() -> None:
    clock = ManualClock()
    start, before = clock.now(), clock.monotonic()
    assert (clock.now(), clock.monotonic()) == (start, before)
    clock.advance(1.5)
    assert clock.now() - start == timedelta(seconds=1.5)
    assert clock.monotonic() - before == 1.5


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        ManualClock().advance(-1)
