"""Tells watchers on this node that approvals have changed. What changed is in the database."""

import asyncio


class ApprovalFeed:
    """A bell, not a queue: whoever hears it reads the table."""

    def __init__(self) -> None:
        self._version = 0
        self.ended = False
        self._changed = asyncio.Event()

    @property
    def version(self) -> int:
        """Changes with every change."""
        return self._version

    def ring(self) -> None:
        """Something has changed, durably."""
        self._version += 1
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        """The process is going away: watchers are to come back elsewhere."""
        self.ended = True
        self.ring()

    async def wait(self, version: int, timeout: float) -> None:
        """Until something has changed since `version`, or the time is up."""
        if self._version != version:
            return
        try:
            async with asyncio.timeout(timeout):
                await self._changed.wait()
        except TimeoutError:
            return
