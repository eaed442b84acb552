"""A provider on the wire: the fake one in a process of its own, and when its clients hung up on it.

`python -m tests.bench.provider` says its address when it listens, and serves until its input closes.
"""

import asyncio
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec
import uvloop

from services.fakellm.record import Ended
from services.fakellm.rules import Rule
from services.fakellm.scripts import Answer, Say
from services.fakellm.server import fake_llm
from tests.bench.child import child, say, until_input_closes
from tests.bench.rig import Unexpected

MODEL = "openai/gpt-5"
SILENT = "say nothing"
SLOW = "speak slowly"

_RULES = (
    Rule(Answer(parts=(Say("hello"),), first_delay=60.0), text=SILENT),
    Rule(Answer(parts=(Say(tokens=500),), token_delay=0.05), text=SLOW),
)
_PATIENCE_SECONDS = 10.0


class _Exchange(msgspec.Struct, frozen=True):
    """What the bench wants to know of one."""

    ended: Ended | None
    ended_at: datetime | None


class Provider:
    """A running fake provider."""

    def __init__(self, address: str) -> None:
        self._requests = f"http://{address}/requests"
        self.environment = {"OPENAI_BASE_URL": f"http://{address}/v1", "OPENAI_API_KEY": "fake"}

    async def hung_up(self) -> float:
        """When the client of the only request hung up (time.time()); then forget the request."""
        give_up = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < give_up:
            found = msgspec.json.decode(await asyncio.to_thread(_ask, self._requests), type=list[_Exchange])
            if len(found) != 1 or found[0].ended not in (None, Ended.CLIENT_CLOSED):
                raise Unexpected(f"the provider has seen {found}")
            if found[0].ended_at is not None:
                await asyncio.to_thread(_ask, self._requests, "DELETE")
                return found[0].ended_at.timestamp()
            await asyncio.sleep(0.01)
        raise Unexpected("the provider's connection is still open")


@asynccontextmanager
async def provider() -> AsyncIterator[Provider]:
    """A provider for the length of a block."""
    async with child("tests.bench.provider") as process:
        yield Provider(process.first.strip())


def _ask(url: str, method: str = "GET") -> bytes:
    request = urllib.request.Request(url, method=method)  # noqa: S310 - our own server
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        return bytes(answer.read())


async def _main() -> None:
    async with fake_llm(rules=_RULES) as fake:
        say(fake.address)
        await until_input_closes()


if __name__ == "__main__":
    uvloop.run(_main())
