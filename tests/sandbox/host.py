"""A server to kill: it runs calls that would never end, and says so. `python -m tests.sandbox.host plain`."""

import asyncio
import os
import sys

from services.sandbox.model import Mode
from services.sandbox.sandbox import Sandbox
from tests.helpers.wait import eventually
from tests.sandbox.leftovers import descendants
from tests.sandbox.rig import LIMITS, Box

_DAEMON = """
    import os, signal, time
    def f():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    while True:
                        time.sleep(1)
                os._exit(0)
        except PermissionError:
            pass
        time.sleep(1000)
"""


async def main(plain: bool) -> None:
    """Say the ids of all processes, once they are there; then wait to be killed."""
    sandbox = Sandbox(LIMITS, mode=Mode.OFF, namespaces=not plain)
    await sandbox.start()
    calls = [asyncio.ensure_future(sandbox.run(Box.job(_DAEMON))) for _ in range(3)]
    # The zygote, and a guard and a worker for each call.
    await eventually(lambda: descendants(os.getpid()), until=lambda found: len(found) >= 7)
    await asyncio.sleep(0.3)
    print(*sorted(descendants(os.getpid())), flush=True)  # noqa: T201 - how it talks to the test
    await asyncio.gather(*calls)


if __name__ == "__main__":
    asyncio.run(main("plain" in sys.argv))
