"""`make bench`: figures about a real server, as CPU per unit of work and as ratios within one run.

`make bench ONLY=messages,cancel` chooses scenarios; `make bench QUICK=1` takes fewer samples. It asserts nothing about
time, but a call that fails, or an answer that is not the expected one, ends it with an error.
"""

import os
import platform
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import uvloop

from tests.bench import cancel, context, gateway, growth, messages, sandbox, stream, waiting
from tests.bench.process import Foreign
from tests.bench.report import Cell, Table

RESULTS = Path(__file__).parent / "bench-results.json"
SCENARIOS: dict[str, Callable[[bool], Awaitable[Table]]] = {
    "messages": messages.run,
    "stream": stream.run,
    "cancel": cancel.run,
    "waiting": waiting.run,
    "growth": growth.run,
    "context": context.run,
    "sandbox": sandbox.run,
    "gateway": gateway.run,
}


def main() -> int:
    """Run what was chosen; the exit code."""
    chosen = [name for name in os.environ.get("ONLY", "").split(",") if name] or list(SCENARIOS)
    unknown = [name for name in chosen if name not in SCENARIOS]
    if unknown:
        sys.stderr.write(f"no scenario {unknown[0]!r}; there are: {', '.join(SCENARIOS)}\n")
        return 1
    uvloop.run(_run(chosen, quick=bool(os.environ.get("QUICK"))))
    return 0


async def _run(chosen: Sequence[str], quick: bool) -> None:
    machine = _machine(quick)
    _say(" · ".join(f"{name} {value}" for name, value in machine.items()))
    found = []
    for name in chosen:
        foreign = Foreign()
        table = await SCENARIOS[name](quick)
        table.notes.append(
            f"other programs kept {foreign.cores():.1f} of {os.cpu_count()} cores busy; load {_load():.1f}"
        )
        found.append(table)
        _say(f"\n{table.text()}")
    results = {"machine": machine, "tables": {table.name: table for table in found}}
    RESULTS.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    _say(f"\nAlso in {RESULTS.relative_to(Path.cwd()) if RESULTS.is_relative_to(Path.cwd()) else RESULTS}")


def _machine(quick: bool) -> dict[str, Cell]:
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(_load(), 2),
        "samples": "quick" if quick else "full",
    }


def _load() -> float:
    return os.getloadavg()[0]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
