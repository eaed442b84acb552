"""A client of ModelService, and what it stands on."""

from collections.abc import Awaitable
from typing import Any

import grpc
import grpc.aio
import pytest

from common.clock import ManualClock
from common.db.engine import Database
from common.pb.bridle.v1 import model_pb2
from common.pb.bridle.v1 import model_service_pb2 as api
from common.pb.bridle.v1.model_service_pb2_grpc import ModelServiceStub
from services.models.registry import ProviderModels

Provider = model_pb2.Provider


class Rig:
    """A running ModelService and a client of it."""

    def __init__(self, db: Database, channel: grpc.aio.Channel, models: ProviderModels, clock: ManualClock) -> None:
        self.db = db
        self.models = models
        self.clock = clock
        self.stub: Any = ModelServiceStub(channel)

    async def put(self, org: str = "", **fields: Any) -> Provider:
        request = api.PutProviderRequest(provider=Provider(**fields))
        provider: Provider = await self.stub.PutProvider(request, timeout=10, metadata=_as(org))
        return provider

    async def delete(self, name: str, org: str = "") -> None:
        await self.stub.DeleteProvider(api.DeleteProviderRequest(name=name), timeout=10, metadata=_as(org))

    async def providers(self, org: str = "", **fields: Any) -> api.ListProvidersResponse:
        found: api.ListProvidersResponse = await self.stub.ListProviders(
            api.ListProvidersRequest(**fields), timeout=10, metadata=_as(org)
        )
        return found

    async def listed(self, org: str = "", **fields: Any) -> api.ListModelsResponse:
        found: api.ListModelsResponse = await self.stub.ListModels(
            api.ListModelsRequest(**fields), timeout=10, metadata=_as(org)
        )
        return found

    async def handles(self, org: str = "", **fields: Any) -> list[str]:
        return [model.handle for model in (await self.listed(org, **fields)).models]


async def refused(call: Awaitable[object]) -> tuple[grpc.StatusCode, str]:
    """How a call was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return raised.value.code(), raised.value.details() or ""


def _as(org: str) -> tuple[tuple[str, str], ...]:
    return (("org", org),) if org else ()
