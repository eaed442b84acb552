"""`python -m tests.simulation`: run schedules, or replay one with a trace."""

import argparse
import sys

from tests.simulation.node import Workbench
from tests.simulation.runner import run_many, say
from tests.simulation.schedule import run_seed


def main() -> int:
    """The exit code: 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many schedules to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    parser.add_argument("--seed", type=int, help="replay this seed and print what happens")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the tenth failure")
    options = parser.parse_args()
    if options.seed is not None:
        run_seed(options.seed, Workbench(), trace=True)
        say(f"seed {options.seed} keeps every promise")
        return 0
    return run_many(range(options.start, options.start + options.seeds), options.jobs, options.keep_going)


if __name__ == "__main__":
    sys.exit(main())
