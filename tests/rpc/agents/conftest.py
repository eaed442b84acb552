"""Every test here runs on a real server with the whole chain, once on SQLite and once on Postgres."""

from collections.abc import AsyncIterator

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from common.clock import SystemClock
from common.db.errors import translate
from common.pb.bridle.v1.agent_service_pb2_grpc import add_AgentServiceServicer_to_server
from common.rpc.chain import ChainLimits, build_chain
from common.rpc.server import bind, build_server, graceful_stop
from common.seal import KeySeal
from common.telemetry.metrics import Metrics
from services.agents.servicer import AgentServicer
from tests.helpers.database import DatabaseFactory, fresh_database
from tests.rpc.agents.rig import ByMetadata, ListedTools, Rig


async def knows_model(organization_id: str, handle: str) -> bool:
    """Only the demo models."""
    return handle.startswith("demo/")


@pytest.fixture
async def rig(databases: DatabaseFactory) -> AsyncIterator[Rig]:
    """A server on a fresh database."""
    chain = build_chain(
        clock=SystemClock(),
        metrics=Metrics(CollectorRegistry()),
        authenticator=ByMetadata(),
        translate=translate,
        limits=ChainLimits(),
    )
    server = build_server(chain)
    port = bind(server, "127.0.0.1:0")
    async with fresh_database(databases) as db, grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        made = Rig(db, channel)
        servicer = AgentServicer(
            db=db,
            clock=SystemClock(),
            catalog=ListedTools(),
            seal=KeySeal("test"),
            knows_model=knows_model,
            default_model="demo/echo",
            cancel_runs=made.cancel_runs,
        )
        add_AgentServiceServicer_to_server(servicer, server)
        await server.start()
        yield made
        await graceful_stop(server, 0)
