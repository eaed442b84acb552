"""Providers that organizations bring: from a row to a client, once for each time the row changes."""

from collections.abc import Callable
from functools import partial
from typing import Any

import httpx2

from common.db.engine import Database
from common.errors import FailedPrecondition
from common.seal import Seal
from services.models import anthropic_messages, openai_chat, openai_responses, store
from services.models.api import ModelRequest
from services.models.environment import Credentials, Unconfigured, anthropic_source, guarded, openai_source
from services.models.metrics import ORGANIZATION, ModelMetrics
from services.models.sources import Source
from services.models.store import StoredProvider

OPENAI_CHAT, OPENAI_RESPONSES, ANTHROPIC = "openai_chat", "openai_responses", "anthropic"

_BODIES: dict[str, Callable[[ModelRequest], dict[str, Any]]] = {
    OPENAI_CHAT: partial(openai_chat.chat_body, own=False),
    OPENAI_RESPONSES: openai_responses.responses_body,
    ANTHROPIC: anthropic_messages.anthropic_body,
}
# Clients that are kept ready; one more costs a millisecond to make.
_MOST = 1000


class StoredProviders:
    """The providers of all organizations. The row is looked at for every call, so that a change counts at once."""

    def __init__(self, db: Database, seal: Seal, http: httpx2.AsyncClient, metrics: ModelMetrics) -> None:
        self._db = db
        self._seal = seal
        self._http = http
        self._metrics = metrics
        self._made: dict[tuple[str, str], tuple[StoredProvider, Source]] = {}

    async def find(self, organization_id: str, name: str) -> Source | None:
        """The organization's provider of this name, if it has one."""
        row = await self._db.lookup(store.find, organization_id, name)
        if row is None:
            self._made.pop((organization_id, name), None)
            return None
        return self._source(row)

    async def every(self, organization_id: str) -> dict[str, Source]:
        """All providers of the organization, by name."""
        return {row.name: self._source(row) for row in await self._db.read(store.every, organization_id)}

    def _source(self, row: StoredProvider) -> Source:
        key = (row.organization_id, row.name)
        made = self._made.pop(key, None)
        if made is None or made[0] != row:
            made = (row, guarded(self._make(row), self._metrics, ORGANIZATION))
        # Put back at the end: the first is the one that was not needed for longest.
        self._made[key] = made
        if len(self._made) > _MOST:
            del self._made[next(iter(self._made))]
        return made[1]

    def _make(self, row: StoredProvider) -> Source:
        try:
            key = self._seal.open(row.sealed_key, row.where) if row.sealed_key is not None else ""
        except FailedPrecondition as error:
            return Source(Unconfigured(error.message, _BODIES[row.api]))
        access = Credentials(row.base_url, key)
        if row.api == ANTHROPIC:
            return anthropic_source(access, self._http)
        return openai_source(access, self._http, responses=row.api == OPENAI_RESPONSES)
