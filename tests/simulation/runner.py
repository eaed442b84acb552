"""Runs many schedules on several processes and says how it went."""

import multiprocessing
import sys
import time
from collections.abc import Iterable
from functools import cache

from tests.simulation.node import Workbench
from tests.simulation.schedule import Outcome, run_seed

_CHUNK = 25
_PROGRESS = 1000


def run_many(seeds: range, jobs: int, keep_going: bool) -> int:
    """Run all of them and say how it went."""
    began = time.perf_counter()
    chunks = [seeds[at : at + _CHUNK] for at in range(0, len(seeds), _CHUNK)]
    done, failures = 0, list[Outcome]()
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for outcomes in pool.imap_unordered(run_chunk, chunks):
            done += len(outcomes)
            failures += report(outcomes)
            if done % _PROGRESS == 0:
                say(f"{done} of {len(seeds)} schedules, {done / (time.perf_counter() - began):.1f} per second")
            if len(failures) >= 10 and not keep_going:
                break
        pool.terminate()
    seconds = time.perf_counter() - began
    say(f"{done} schedules in {seconds:.1f} s: {done / seconds:.1f} per second, {len(failures)} broke a promise")
    return 1 if failures else 0


@cache
def workbench() -> Workbench:
    """This process's."""
    return Workbench()


def run_chunk(seeds: range) -> list[Outcome]:
    """Some seeds in this process."""
    bench = workbench()
    return [run_seed(seed, bench) for seed in seeds]


def report(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Print the failures, each with the command that replays it."""
    failures = [outcome for outcome in outcomes if outcome.failure]
    for outcome in failures:
        say(f"seed {outcome.seed}: {outcome.failure}\n  replay: make simulate SEED={outcome.seed}")
    return failures


def say(text: str) -> None:
    """To whoever started this."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
