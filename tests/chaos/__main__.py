"""`python -m tests.chaos --rounds 200 --seed S`: kill a server for minutes and print what came of it."""

import argparse
import asyncio
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.chaos.campaign import Campaign, Report

_TOTALS = (
    ("acknowledged messages", "message"),
    ("of those, joined a live run", "messages joined"),
    ("refused messages", "messages refused"),
    ("acknowledged approvals", "approval"),
    ("acknowledged cancels", "cancel"),
    ("runs", "runs"),
    ("recovered runs", "recovered runs"),
    ("void ranges", "void ranges"),
    ("void ranges seen by readers", "void ranges seen"),
    ("tool outcomes seen by readers", "tool finished"),
    ("tool outcomes unknown", "unknown outcomes"),
    ("streams resumed after a crash", "streams resumed"),
    ("streams hung up and resumed", "streams hung up"),
    ("calls repeated after a crash", "calls repeated"),
)
_SHOWN = 20


def _summary(report: Report) -> str:
    lines = [f"{'rounds':32}{report.rounds} in {report.seconds:.0f} s, seed {report.seed}"]
    lines += [f"{title:32}{report.totals[key]}" for title, key in _TOTALS]
    lines.append(f"{'slowest to come to rest':32}{report.slowest_settling:.1f} s")
    lines.append(f"{'violations':32}{len(report.violations)}")
    return "\n".join(lines)


def _failure(report: Report) -> str:
    lines = [*report.violations[:_SHOWN], f"({len(report.violations)} in all)"]
    lines.append(f"data, marks and the server's log are in {report.folder}")
    lines.append(f"again: python -m tests.chaos --rounds {report.rounds} --seed {report.seed}")
    return "\n".join(lines)


def _progress(report: Report) -> None:
    sys.stderr.write(f"\r{report.rounds} rounds, {report.seconds:.0f} s, {len(report.violations)} violations ")
    sys.stderr.flush()


def main() -> int:
    """Run from the command line; 1 if anything did not add up."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how often to kill the server")
    parser.add_argument("--seed", default=str(random.randrange(10**6)), help="what to do, and roughly when")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bridle-chaos-"))

    async def campaign() -> Report:
        return await Campaign(folder, options.seed).run(options.rounds, _progress)

    report = asyncio.run(campaign())
    sys.stdout.write(f"\n{_summary(report)}\n")
    if report.violations:
        sys.stdout.write(f"{_failure(report)}\n")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
