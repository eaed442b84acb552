"""ModelService on a real server with the whole chain, once on SQLite and once on Postgres."""

from collections.abc import AsyncIterator

import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from common.clock import ManualClock, SystemClock
from common.db.errors import translate
from common.pb.bridle.v1.model_service_pb2_grpc import add_ModelServiceServicer_to_server
from common.rpc.chain import ChainLimits, build_chain
from common.rpc.server import bind, build_server, graceful_stop
from common.seal import KeySeal
from common.telemetry.metrics import Metrics
from services.models.catalog import ModelInfo
from services.models.demo import MODELS, DemoProvider
from services.models.environment import providers
from services.models.http import http_client
from services.models.listing import ModelList
from services.models.metrics import ModelMetrics
from services.models.registry import ProviderModels
from services.models.servicer import ModelServicer
from services.models.sources import Source
from services.models.stored import StoredProviders
from tests.helpers.database import DatabaseFactory, fresh_database
from tests.helpers.fakellm import FakeLlm, fake_llm
from tests.rpc.agents.rig import ByMetadata
from tests.rpc.models.rig import Rig


@pytest.fixture
async def fake() -> AsyncIterator[FakeLlm]:
    async with fake_llm() as server:
        yield server


@pytest.fixture
async def rig(databases: DatabaseFactory, fake: FakeLlm) -> AsyncIterator[Rig]:
    """A server on a fresh database, whose own `openai` is the fake."""
    chain = build_chain(
        clock=SystemClock(),
        metrics=Metrics(CollectorRegistry()),
        authenticator=ByMetadata(),
        translate=translate,
        limits=ChainLimits(),
    )
    server = build_server(chain)
    port = bind(server, "127.0.0.1:0")
    seal, metrics, clock = KeySeal("test"), ModelMetrics(CollectorRegistry()), ManualClock()
    async with (
        fresh_database(databases) as db,
        http_client() as http,
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        own = providers({"OPENAI_BASE_URL": fake.openai_base_url}, http, metrics)
        demo = Source(DemoProvider(), tuple(map(ModelInfo, MODELS)))
        models = ProviderModels({"demo": demo, **own}, StoredProviders(db, seal, http, metrics))
        servicer = ModelServicer(db=db, clock=SystemClock(), seal=seal, models=ModelList(models, clock))
        add_ModelServiceServicer_to_server(servicer, server)
        await server.start()
        yield Rig(db, channel, models, clock)
        await graceful_stop(server, 0)
