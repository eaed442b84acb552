"""Following approvals across runs: those that are open, then every change."""

from collections.abc import AsyncGenerator
from datetime import timedelta

from common.clock import Clock
from common.db.engine import Database
from common.errors import Draining
from services.runs.feed import ApprovalFeed
from services.runs.model import Approval
from services.runs.store.approvals import ApprovalFilter, changed_since, list_approvals
from services.runs.store.queries import Listing

# Other nodes ring no bell here.
_POLL_SECONDS = 1.0
# Commits become visible out of the order of their times; nothing takes longer than this to show up.
_OVERLAP = timedelta(seconds=10)
_PAGE = 500


class ApprovalWatch:
    """Gives one watcher what it has not seen."""

    def __init__(self, db: Database, clock: Clock, feed: ApprovalFeed, heartbeat: float) -> None:
        self._db = db
        self._clock = clock
        self._feed = feed
        self._heartbeat = heartbeat

    async def follow(self, which: ApprovalFilter) -> AsyncGenerator[Approval | None, None]:
        """Approvals as they are, then as they change. None is a sign of life."""
        since = self._clock.now()
        told: dict[str, Approval] = {}
        async for approval in self._open(which):
            told[approval.id] = approval
            yield approval
        quiet_since = self._clock.monotonic()
        while not self._feed.ended:
            version, now = self._feed.version, self._clock.now()
            changed = await self._db.read(changed_since, which, since - _OVERLAP)
            news = [each for each in changed if told.get(each.id) != each]
            for approval in news:
                yield approval
            # Only what the next look can find again must be remembered.
            told = {each.id: each for each in changed}
            since = now
            if news or self._clock.monotonic() - quiet_since >= self._heartbeat:
                quiet_since = self._clock.monotonic()
                if not news:
                    yield None
            await self._feed.wait(version, min(_POLL_SECONDS, self._heartbeat))
        raise Draining

    async def _open(self, which: ApprovalFilter) -> AsyncGenerator[Approval, None]:
        token = ""
        while True:
            found, token = await self._db.read(list_approvals, which, Listing(_PAGE, token, descending=False))
            for approval in found:
                yield approval
            if not token:
                return
