"""Dry runs: what a provider would be sent, without sending it and without a trace."""

import msgspec
from sqlalchemy import Connection

from common.db.engine import Database
from common.errors import NotFound
from common.pb.bridle.v1 import run_service_pb2
from services.agents import store as agents_store
from services.context.dry_run import dry_run
from services.context.situation import Situation, situation
from services.models.api import Models
from services.models.errors import ModelError
from services.runs import convert
from services.tools.catalog import ToolCatalog


class Previews:
    """Makes requests as runs make them."""

    def __init__(self, *, db: Database, catalog: ToolCatalog, models: Models, default_model: str) -> None:
        self._db = db
        self._catalog = catalog
        self._models = models
        self._default_model = default_model

    async def make(self, organization_id: str, wanted: run_service_pb2.CreateRunRequest) -> tuple[str, bytes]:
        """The provider that a run would call first, and the body that it would be sent."""
        if wanted.options.model and not await self._models.knows(organization_id, wanted.options.model):
            raise NotFound("model", wanted.options.model)
        now = await self._db.read(self._read, organization_id, wanted)
        request = dry_run(now, convert.request_from_pb(wanted), self._default_model)
        try:
            provider, name = await self._models.resolve(organization_id, request.model)
        except ModelError:
            # The agent was given it while it was there.
            raise NotFound("model", request.model) from None
        body = provider.preview(msgspec.structs.replace(request, model=name))
        return request.model.partition("/")[0], body

    def _read(self, conn: Connection, organization_id: str, wanted: run_service_pb2.CreateRunRequest) -> Situation:
        agent = agents_store.get(conn, organization_id, wanted.agent_id)
        conversation_id = wanted.conversation_id or agent.default_conversation_id
        found = situation(conn, organization_id, conversation_id, self._catalog)
        if found.agent.id != agent.id:
            raise NotFound("conversation", conversation_id)
        return found
