"""What the pieces of a context weigh. A message never changes, so it is counted once."""

import asyncio
from collections.abc import Hashable, Iterable, Sequence

from msgspec import Struct

from services.messages.model import InContext, Role
from services.models import tokens
from services.models.api import ModelRequest, ToolSpec

# Numbers only, so that this many are a few megabytes.
_MOST = 50_000
# Messages that are counted before others get a turn.
_AT_ONCE = 32


class Weighed(Struct, frozen=True):
    """A message and its tokens."""

    entry: InContext
    tokens: int


class Scale(Struct, frozen=True):
    """What a request weighs: what goes with every call, and each message, a summary first if there is one."""

    fixed: int
    messages: tuple[Weighed, ...]

    @property
    def tokens(self) -> int:
        """All of it."""
        return self.fixed + sum(each.tokens for each in self.messages)


class Weights:
    """A node's memory of counts, by message id and by text; the longest unused are forgotten first."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._known: dict[Hashable, int] = {}

    async def weigh(self, request: ModelRequest, context: Sequence[InContext]) -> Scale:
        """Weigh a request and the context that it was made of. A long one is not counted in one go."""
        if not tokens.loaded():
            await asyncio.to_thread(tokens.load)
        weighed: list[Weighed] = []
        for number, entry in enumerate(context, 1):
            weighed.append(Weighed(entry, self.message(entry)))
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return Scale(self.fixed(request.system, request.tools), tuple(weighed))

    def message(self, entry: InContext) -> int:
        """One message of the log; decisions about calls are not shown to models."""
        if entry.role is Role.APPROVAL:
            return 0
        return self._recall(entry.id) or self._learn(entry.id, tokens.PER_MESSAGE + tokens.of_parts(entry.body.parts))

    def fixed(self, system: str, tools: Iterable[ToolSpec]) -> int:
        """What every call carries, whatever was said."""
        return self.text(system) + sum(tokens.of_tool(tool, self.text) for tool in tools)

    def text(self, text: str) -> int:
        """A text that comes again and again; it is known by its hash, not kept."""
        key = (hash(text), len(text))
        return self._recall(key) or self._learn(key, tokens.count(text))

    def _recall(self, key: Hashable) -> int:
        found = self._known.pop(key, 0)
        if found:
            self._known[key] = found
        return found

    def _learn(self, key: Hashable, weight: int) -> int:
        self._known[key] = weight
        if len(self._known) > self._most:
            del self._known[next(iter(self._known))]
        return weight
