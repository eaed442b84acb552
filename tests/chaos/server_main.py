"""`bridle serve` with tools that leave marks: the server that the chaos suite kills."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

from common import log
from common.settings import Settings
from services.app import Parts, running
from tests.chaos.effects import marking_tools


async def serve(settings: Settings, marks: Path) -> None:
    """Serve until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with running(settings, Parts(tools=tuple(marking_tools(marks)))):
        await stop.wait()


if __name__ == "__main__":
    settings = Settings.from_env(os.environ)
    log.configure(settings.log_level, settings.log_format)
    uvloop.run(serve(settings, Path(sys.argv[1])))
