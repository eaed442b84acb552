"""ModelService: which models there are, and where they are reached."""

from typing import Any

from google.protobuf.empty_pb2 import Empty
from sqlalchemy import Connection

from common.clock import Clock
from common.db.engine import Database
from common.db.paging import decode_token, encode_token, list_scope, page_size
from common.errors import InvalidArgument
from common.pb.bridle.v1 import model_pb2, model_service_pb2, model_service_pb2_grpc
from common.rpc.context import current_call
from common.seal import Seal
from services.models import convert, store
from services.models.listing import ModelList
from services.models.store import StoredProvider
from services.wire import checks
from services.wire.checks import require

_PAGE = 100


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """The models of this server and of the caller's organization, and the providers that it has configured."""

    def __init__(self, *, db: Database, clock: Clock, seal: Seal, models: ModelList) -> None:
        self._db = db
        self._clock = clock
        self._seal = seal
        self._models = models

    async def ListModels(
        self, request: model_service_pb2.ListModelsRequest, context: Any
    ) -> model_service_pb2.ListModelsResponse:
        """A page of models by handle."""
        require(checks.text("provider", request.provider, most=32))
        organization_id, size = _organization(), page_size(request.page_size, _PAGE)
        scope = list_scope("ListModels", organization_id, request.provider)
        after = decode_token(scope, request.page_token)
        listed = await self._models.of(organization_id, request.provider)
        found = [item for item in listed.items() if after is None or (item[0],) > after]
        more = encode_token(scope, (found[size - 1][0],)) if len(found) > size else ""
        models = [convert.model_to_pb(*item) for item in found[:size]]
        return model_service_pb2.ListModelsResponse(models=models, next_page_token=more)

    async def PutProvider(self, request: model_service_pb2.PutProviderRequest, context: Any) -> model_pb2.Provider:
        """Configure a provider, or change it."""
        require(convert.provider_problems(request.provider))
        return convert.provider_to_pb(await self._db.write(self._put, _organization(), request.provider))

    async def ListProviders(
        self, request: model_service_pb2.ListProvidersRequest, context: Any
    ) -> model_service_pb2.ListProvidersResponse:
        """A page of providers by name."""
        size = page_size(request.page_size, _PAGE)
        found, token = await self._db.read(store.list_page, _organization(), size=size, token=request.page_token)
        providers = map(convert.provider_to_pb, found)
        return model_service_pb2.ListProvidersResponse(providers=providers, next_page_token=token)

    async def DeleteProvider(self, request: model_service_pb2.DeleteProviderRequest, context: Any) -> Empty:
        """Remove a provider's configuration."""
        require(convert.name_problems("name", request.name))
        await self._db.write(store.remove, _organization(), request.name)
        return Empty()

    def _put(self, conn: Connection, organization_id: str, pb: model_pb2.Provider) -> StoredProvider:
        now, sealed = self._clock.now(), None
        if pb.api_key:
            sealed = self._seal.seal(pb.api_key, store.place(organization_id, pb.name))
        stored = store.put(
            conn,
            StoredProvider(
                organization_id=organization_id,
                name=pb.name,
                api=convert.api_from_pb(pb),
                base_url=pb.base_url,
                sealed_key=sealed,
                created_at=now,
                updated_at=now,
            ),
        )
        if stored.sealed_key is None and not stored.base_url:
            raise InvalidArgument.of("provider.api_key", "is required at the vendor's own address")
        return stored


def _organization() -> str:
    return current_call().organization_id
