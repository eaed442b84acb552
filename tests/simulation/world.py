"""What everything in one schedule shares: the seed's choices, the trace, the way to say that a promise was broken."""

import random
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from common.ids import seeded_ids
from tests.simulation.loop import NODE, SimLoop

_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


class Violation(Exception):
    """A promise was broken."""


class Hazards(Struct):
    """How dangerous this schedule is. All are probabilities per occasion unless they say otherwise."""

    cluster: bool
    stall: float = 0.0
    refused: float = 0.0
    lost_answer: float = 0.0
    crash: float = 0.0
    lost_wake: float = 0.0
    slow_wake: float = 0.0
    double_mail: float = 0.0
    # Of the nemesis: mean seconds between two strikes, 0 for never.
    strikes: float = 0.0
    reserve: int = 4096
    kept: int = 512
    max_runs: int = 8
    # How long models and tools take: a slow one is more often struck, a fast one more often races.
    pace: float = 1.0
    approval_ttl: float = 0.0
    # Hazards are over; what is left must come to an end.
    calm: bool = False


def _sometimes(rng: random.Random, most: float) -> float:
    """Half of all schedules lack a given hazard, so that the others are seen alone too."""
    return rng.uniform(0, most) if rng.random() < 0.5 else 0.0


def draw_hazards(rng: random.Random) -> Hazards:
    """What a seed has in store."""
    return Hazards(
        cluster=rng.random() < 0.4,
        stall=_sometimes(rng, 0.08),
        refused=_sometimes(rng, 0.15),
        lost_answer=_sometimes(rng, 0.15),
        crash=_sometimes(rng, 0.03),
        lost_wake=_sometimes(rng, 0.5),
        slow_wake=_sometimes(rng, 0.5),
        double_mail=_sometimes(rng, 0.4),
        strikes=rng.choice((0.0, 1.0, 3.0)),
        reserve=rng.choice((4, 16, 4096)),
        kept=rng.choice((2, 512)),
        max_runs=rng.choice((1, 2, 8)),
        pace=rng.choice((0.3, 1.0, 4.0)),
        approval_ttl=rng.choice((0.0, 0.0, 6.0)),
    )


class World:
    """One schedule."""

    def __init__(self, seed: int, *, trace: bool = False) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.hazards = draw_hazards(self.rng)
        self.ids = seeded_ids(random.Random(self.rng.getrandbits(64)))
        self.loop = SimLoop(random.Random(self.rng.getrandbits(64)), shuffle=self.rng.random() < 0.6)
        self._trace = trace
        self._numbers = 0

    def number(self) -> int:
        """A number that nobody else got."""
        self._numbers += 1
        return self._numbers

    def chance(self, probability: float) -> bool:
        """Whether a hazard strikes on this occasion."""
        return not self.hazards.calm and probability > 0 and self.rng.random() < probability

    def now(self, skew: float = 0.0) -> datetime:
        """The time of day."""
        return _EPOCH + timedelta(seconds=self.loop.time() + skew)

    def trace(self, text: str) -> None:
        """A line for whoever replays this seed."""
        if self._trace:
            node = NODE.get()[-4:] or "----"
            print(f"{self.loop.time():9.3f} {node} {text}")  # noqa: T201 - the trace is the product

    @property
    def tracing(self) -> bool:
        """Whether anybody reads the trace."""
        return self._trace

    def fail(self, promise: str) -> None:
        """A promise was broken: the schedule ends here."""
        self.trace(f"VIOLATION {promise}")
        self.loop.fail(Violation(f"{promise} (at {self.loop.time():.3f} s)"))

    def check(self, holds: bool, promise: str) -> None:
        """Fail unless this holds."""
        if not holds:
            self.fail(promise)


class NodeClock:
    """A node's own clock: virtual, and a little wrong."""

    def __init__(self, world: World, skew: float) -> None:
        self._world = world
        self._skew = skew

    def now(self) -> datetime:
        """The time of day, as this node sees it."""
        return self._world.now(self._skew)

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._world.loop.time()
