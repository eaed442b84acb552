"""eventually() returns the first good answer, and shows the last bad one."""

import pytest

from tests.helpers import eventually


async def test_returns_the_first_answer_that_is_true() -> None:
    answers = iter([0, 0, 7, 8])
    assert await eventually(lambda: next(answers), interval=0) == 7


async def test_awaits_an_async_probe_and_applies_until() -> None:
    answers = iter(range(10))

    async def probe() -> int:
        return next(answers)

    assert await eventually(probe, until=lambda value: value >= 3, interval=0) == 3


async def test_a_failed_assertion_means_not_yet() -> None:
    answers = iter([1, 2, 3])

    def probe() -> bool:
        assert next(answers) == 3
        return True

    assert await eventually(probe, interval=0)


async def test_time_running_out_shows_the_last_answer() -> None:
    with pytest.raises(AssertionError, match=r"not within 0\.02 s; last seen: \[\]"):
        await eventually(list, timeout=0.02)
