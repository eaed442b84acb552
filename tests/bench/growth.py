"""Growth: what one message costs when the conversation gets long."""

from tests.bench.report import Table, percentile, spread_ms
from tests.bench.rig import rig, timed

_SIZES = (10, 100, 500, 1000)
_QUICK_SIZES = (10, 100, 200)


async def run(quick: bool) -> Table:
    """SendMessage on demo/echo with so many messages in context."""
    table = Table("growth", "SendMessage on demo/echo by messages in context; ratio = to the shortest")
    tries = 10 if quick else 30
    async with rig() as bench:
        agent_id = await bench.client.create_agent()
        held, shortest = 0, 0.0

        async def say() -> float:
            # What was said, and what was answered.
            nonlocal held
            held += 2
            return await timed(lambda: bench.client.send(agent_id, "hello there, how are you"))

        for size in _QUICK_SIZES if quick else _SIZES:
            while held < size:
                await say()
            cpu = bench.cpu()
            took = [await say() for _ in range(tries)]
            cpu = bench.cpu() - cpu
            median = percentile(took, 50)
            shortest = shortest or median
            table.add(
                messages_in_context=f"{size}-{held}",
                calls=tries,
                **spread_ms(took),
                server_CPU_ms=cpu / tries * 1e3,
                ratio=median / shortest,
            )
    return table
