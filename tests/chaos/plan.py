"""What clients say to agents: scripts for the demo model, each of them said only once."""

import itertools
import json
import random

from tests.chaos.effects import TOOLS


class Scripts:
    """Makes scripts. Every one has a word of its own in it, and so has every tool call."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._numbers = itertools.count(1)

    def any(self, rng: random.Random) -> str:
        """Something to say."""
        kinds = (self.words, self._count, self._wait, self._call, self._several, self._chain)
        return rng.choices(kinds, weights=(3, 2, 1, 5, 3, 3))[0](rng)

    def words(self, rng: random.Random) -> str:
        """Something that is merely echoed."""
        return f"say {' '.join(self._word() for _ in range(rng.randint(1, 3)))}"

    def _word(self) -> str:
        return f"{self._name}w{next(self._numbers)}x"

    def _count(self, rng: random.Random) -> str:
        return f"count to {rng.randint(1, 25)} for {self._word()}"

    def _wait(self, rng: random.Random) -> str:
        return f"call wait {json.dumps({'seconds': round(rng.uniform(0, 0.3), 2), 'token': self._word()})}"

    def _call(self, rng: random.Random) -> str:
        arguments = {"token": self._word(), "seconds": rng.choice((0, round(rng.uniform(0, 0.6), 2)))}
        return f"call {rng.choice(tuple(TOOLS))} {json.dumps(arguments)}"

    def _several(self, rng: random.Random) -> str:
        return " and ".join(self._call(rng) for _ in range(rng.randint(2, 4)))

    def _chain(self, rng: random.Random) -> str:
        return " then ".join(rng.choice((self._call, self._several))(rng) for _ in range(rng.randint(2, 3)))
