"""Other people's streams: readers of runs that go on, in a process of their own so that they do not disturb our clock.

`python -m tests.bench.crowd ADDRESS COUNT` says a line when every stream shows tokens, reads on until its input closes,
and then says how many tokens per second it has read.
"""

import asyncio
import sys
import time
from typing import Any

import grpc.aio
import uvloop

from tests.bench.child import say, until_input_closes
from tests.bench.rig import Client

# At 50 ms per token a run of these lasts five minutes; then the next one begins.
_TOKENS = 6000


class _Reader:
    """One stream."""

    def __init__(self, client: Client, agent_id: str) -> None:
        self._client = client
        self._agent_id = agent_id
        self.started = asyncio.Event()
        self.tokens = 0

    async def run(self) -> None:
        while True:
            call: Any = self._client.stream(self._agent_id, f"count to {_TOKENS}", timeout=None)
            async for response in call:
                if response.event.HasField("text_delta"):
                    self.tokens += 1
                    self.started.set()


async def _main(address: str, count: int) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        client = Client(channel)
        readers = [_Reader(client, await client.create_agent("demo/slow")) for _ in range(count)]
        # A reader that fails ends the group, and with it this process.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(reader.run()) for reader in readers]
            for reader in readers:
                await reader.started.wait()
            before, began = sum(reader.tokens for reader in readers), time.perf_counter()
            say("all streams are live")
            await until_input_closes()
            read = sum(reader.tokens for reader in readers) - before
            say(str(read / (time.perf_counter() - began)))
            for task in tasks:
                task.cancel()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], int(sys.argv[2])))
