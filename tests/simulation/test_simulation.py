"""The promises hold in random schedules, and the simulation notices when a guard is missing."""

import os

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.node import Workbench
from tests.simulation.runner import run_chunk, run_many
from tests.simulation.schedule import run_seed

_SCHEDULES = 2000
# A mutant that hides among so many schedules would hide from us.
_MOST_SEEDS = 300


@pytest.fixture(scope="module")
def bench() -> Workbench:
    return Workbench()


@pytest.mark.timeout(600)
def test_every_promise_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    failed = run_many(range(_SCHEDULES), jobs=os.cpu_count() or 1, keep_going=False)
    assert not failed, capfd.readouterr().out


def test_a_seed_always_does_the_same(bench: Workbench, capsys: pytest.CaptureFixture[str]) -> None:
    traces = []
    for _ in range(2):
        run_seed(8, bench, trace=True)
        traces.append(capsys.readouterr().out)
    assert traces[0] == traces[1]
    assert "model call" in traces[0]


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", MUTANTS)
def test_a_missing_guard_is_noticed(name: str, bench: Workbench) -> None:
    mutant = MUTANTS[name]
    with mutant.broken():
        assert any(run_seed(mutant.start + number, bench).failure for number in range(_MOST_SEEDS))


def test_the_same_seeds_pass_with_the_guards() -> None:
    assert not [outcome for outcome in run_chunk(range(20)) if outcome.failure]
