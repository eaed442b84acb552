"""Kill the server again and again, and account for everything in between."""

import asyncio
import contextlib
import random
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.run_pb2 import Run
from tests.chaos import account
from tests.chaos.account_tools import tools
from tests.chaos.caller import Caller
from tests.chaos.crew import Crew
from tests.chaos.effects import read_effects
from tests.chaos.ledger import Ledger
from tests.chaos.truth import Truth, gather
from tests.chaos.victim import Victim

# At most this long after the last restart, everything that was begun has ended.
SETTLE_SECONDS = 30.0
_ROUNDS_BETWEEN_ACCOUNTS = (1, 6)
_LONGEST_ROUND = 1.2
# A kill may be tied to something that a client has just been told.
_OCCASIONS = (
    "message",
    "approval",
    "cancel",
    "delta",
    "tool started",
    "tool finished",
    "approval requested",
    "stopped",
)


@dataclass
class Report:
    """How a campaign went."""

    seed: str
    folder: Path
    rounds: int = 0
    seconds: float = 0.0
    slowest_settling: float = 0.0
    totals: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)


class Campaign:
    """Clients in seasons, each with agents of their own, on one server that is killed many times in each."""

    def __init__(self, folder: Path, seed: str) -> None:
        self.report = Report(seed, folder)
        self.victim = Victim(folder)
        self._rng = random.Random(seed)
        self._seasons = 0
        self._final: dict[str, tuple[int, int]] = {}

    async def run(self, rounds: int, progress: Callable[[Report], None] = lambda report: None) -> Report:
        """Kill this many times, or until something does not add up."""
        began = time.monotonic()
        try:
            await self.victim.ready()
            while self.report.rounds < rounds and not self.report.violations:
                most = self._rng.randint(*_ROUNDS_BETWEEN_ACCOUNTS)
                await self.season(min(most, rounds - self.report.rounds))
                self.report.seconds = time.monotonic() - began
                progress(self.report)
        finally:
            await self.victim.kill()
        self.report.violations += self._at_the_end()
        return self.report

    async def season(self, rounds: int) -> None:
        """Some rounds with the same clients, then the accounts."""
        async with self.clients() as crew:
            for _ in range(rounds):
                await self._round(crew.ledger)
                self.report.rounds += 1

    @contextlib.asynccontextmanager
    async def clients(self) -> AsyncIterator[Crew]:
        """Clients at work; afterwards everything must add up."""
        self._seasons += 1
        ledger = Ledger()
        caller = Caller(self.victim.address, ledger)
        crew = Crew(f"s{self.report.seed}n{self._seasons}", caller, ledger)
        try:
            await crew.start()
            yield crew
            await self._settle(crew)
        finally:
            await crew.stop()
            await caller.close()
            self.report.violations += ledger.violations
            self.report.totals += ledger.counts
            self._final |= ledger.final

    async def _round(self, ledger: Ledger) -> None:
        if self._rng.random() < 0.15:
            # The server dies while it starts.
            await self.victim.kill()
            self.victim.start_again()
            await asyncio.sleep(self._rng.uniform(0, 1.5))
        else:
            await self._wait_for_the_moment(ledger)
        await self.victim.kill()
        self.victim.start_again()
        await self.victim.ready()

    async def _wait_for_the_moment(self, ledger: Ledger) -> None:
        seconds = self._rng.uniform(0, _LONGEST_ROUND)
        if self._rng.random() < 0.5:
            await asyncio.sleep(seconds)
            return
        occasion = self._rng.choice(_OCCASIONS)
        try:
            async with asyncio.timeout(2 * seconds):
                for _ in range(self._rng.randint(1, 4)):
                    await ledger.next(occasion)
        except TimeoutError:
            return

    async def _settle(self, crew: Crew) -> None:
        began = time.monotonic()
        settled = await crew.finish(SETTLE_SECONDS)
        self.report.slowest_settling = max(self.report.slowest_settling, time.monotonic() - began)
        if not settled:
            await crew.name_the_stuck()
            return
        truth = await gather(crew.caller, crew.agents)
        for problem in self._problems(truth, crew, crew.ledger):
            crew.ledger.violation(problem)
        self._count(truth)
        await crew.greet()

    def _problems(self, truth: Truth, crew: Crew, ledger: Ledger) -> Iterator[str]:
        yield from account.messages(truth, ledger)
        yield from account.runs(truth, ledger)
        yield from account.turns(truth)
        yield from account.approvals(truth, ledger)
        yield from account.conversations(truth)
        yield from account.streams(truth, crew.watches.values())
        yield from account.logs(truth)
        yield from tools(truth, read_effects(self.victim.marks))

    def _count(self, truth: Truth) -> None:
        totals = self.report.totals
        totals["runs"] += len(truth.runs)
        for events in truth.events.values():
            restarts = sum(event.HasField("restarted") for event in events)
            totals["void ranges"] += restarts
            totals["recovered runs"] += restarts > 0
            outcomes = [event.tool_finished.result.outcome for event in events if event.HasField("tool_finished")]
            totals["unknown outcomes"] += outcomes.count(ToolReturn.OUTCOME_UNKNOWN)

    def _at_the_end(self) -> Iterator[str]:
        """The file is whole, what was final in any season still is, and the server found nothing wrong with itself."""
        with contextlib.closing(sqlite3.connect(self.victim.folder / "data" / "bridle.db")) as file:
            for check in ("integrity_check", "foreign_key_check"):
                yield from (f"{check}: {row}" for row in file.execute(f"PRAGMA {check}") if row != ("ok",))
            states: dict[str, str] = dict(file.execute("SELECT id, state FROM runs"))
        for run_id, state in states.items():
            expected = self._final.get(run_id)
            if expected is not None and Run.State.Value(f"STATE_{state.upper()}") != expected[0]:
                yield f"{run_id}: is {state} in the end"
        yield from (f"{run_id}: is gone in the end" for run_id in self._final.keys() - states.keys())
        for line in self.victim.log_file.read_text(errors="replace").splitlines():
            if '"level":"error"' in line or line.startswith("Traceback"):
                yield f"the server's log says {line}"
