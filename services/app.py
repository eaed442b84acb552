"""The composition root: settings in, a serving process out, and the order in which it ends."""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import cast

import grpc.aio
import httpx2
import uvloop
from msgspec import Struct
from prometheus_client import CollectorRegistry

from common import log
from common.clock import Clock, SystemClock
from common.db import errors as db_errors
from common.db import migrate
from common.db.engine import Database, open_database
from common.ids import Prefix, new_id
from common.pb.bridle.v1 import run_service_pb2
from common.pb.bridle.v1.run_service_pb2_grpc import RunServiceStub, add_RunServiceServicer_to_server
from common.rpc.adapter import Interceptor
from common.rpc.auth import Anonymous
from common.rpc.chain import ChainLimits, build_chain
from common.rpc.channel import open_channel
from common.rpc.health import Health
from common.rpc.inprocess import InProcessChannel
from common.rpc.local import LocalChannel
from common.rpc.server import ByName, add_infrastructure, bind, build_server, graceful_stop
from common.seal import seal_for
from common.settings import Settings
from common.startup import StartupError
from common.telemetry.metrics import Metrics
from gateway.app import GatewayConfig, create_app
from gateway.backend import Backend
from gateway.callbacks import render as render_callback
from gateway.server import http_server
from services.agents import secrets
from services.agents.servicer import AgentServicer
from services.blocks.servicer import BlockServicer
from services.callbacks.relay import CallbackRelay
from services.context.weights import Weights
from services.conversations.compact import Compactor
from services.conversations.servicer import ConversationServicer
from services.messages.preview import Previews
from services.messages.servicer import MessageServicer
from services.models.api import Models
from services.models.catalog import ModelInfo
from services.models.demo import CONTEXT_WINDOW, DemoProvider
from services.models.demo import MODELS as DEMO_MODELS
from services.models.demo import PREFIX as DEMO
from services.models.environment import providers
from services.models.http import http_client
from services.models.listing import ModelList
from services.models.metrics import ModelMetrics
from services.models.registry import ProviderModels
from services.models.servicer import ModelServicer
from services.models.sources import Source
from services.models.stored import StoredProviders
from services.register import SERVICES, Servicers, register
from services.runs.actor import Engine
from services.runs.approval_servicer import ApprovalServicer
from services.runs.feed import ApprovalFeed
from services.runs.log import RunLog
from services.runs.metrics import RunMetrics
from services.runs.servicer import RunServicer
from services.runs.supervisor import Supervisor
from services.runs.traces import Traces
from services.runs.watch import ApprovalWatch
from services.sandbox.api import Runs
from services.sandbox.build import build_sandbox
from services.tools.api import ToolRunner
from services.tools.builtin import BUILTIN_TOOLS
from services.tools.catalog import Catalog
from services.tools.functions import FunctionTool, FunctionTools
from services.tools.memory import memory_tools
from services.tools.metrics import ToolMetrics
from services.tools.python import PythonRunner
from services.tools.runner import CompositeRunner, Runners
from services.tools.servicer import ToolServicer
from services.toolservers.connect import connector
from services.toolservers.metrics import ToolServerMetrics
from services.toolservers.pool import Pool
from services.toolservers.runner import ToolServerRunner
from services.toolservers.servicer import ToolServers
from services.toolservers.validate import Limits

logger = logging.getLogger(__name__)

# A message is answered when its run stops, which may take as long as an agent needs.
_SEND_MESSAGE_SECONDS = 3600.0
# So is the trial of a tool, which has a limit of its own.
_RUN_TOOL_SECONDS = 86_400.0
# A summary is a model call, and may be tried again.
_COMPACT_SECONDS = 600.0
# After streams were told to end: time for calls that are nearly done.
_STOP_SECONDS = 2.0
# How soon a process is not ready when its database is gone, and ready when that is back.
_PING_SECONDS = 1.0


class Parts(Struct, frozen=True):
    """What a test may bring instead of the real thing."""

    clock: Clock = SystemClock()
    models: Models | None = None
    tools: Iterable[FunctionTool] = ()
    # Where the SDKs' variables are looked for; None: in the process's environment.
    environ: Mapping[str, str] | None = None
    sandbox: Runs | None = None


class Node:
    """Everything one process runs, without its listeners."""

    def __init__(self, settings: Settings, db: Database, parts: Parts, http: httpx2.AsyncClient) -> None:
        self.registry = CollectorRegistry()
        self.metrics = Metrics(self.registry)
        self.db = db
        self.clock = parts.clock
        self.seal = seal_for(settings.secret_key, settings.key_folder)
        model_metrics = ModelMetrics(self.registry)
        self.feed = ApprovalFeed()
        self.log = RunLog(db, parts.clock, settings.heartbeat_seconds)
        own = _models(settings, parts, StoredProviders(db, self.seal, http, model_metrics), http, model_metrics)
        models = parts.models or own
        self.traces = Traces(db, parts.clock, self.seal, settings.trace_bytes) if settings.trace else None
        self.sandbox = build_sandbox(settings, os.environ, self.registry)
        functions = FunctionTools((*BUILTIN_TOOLS, *memory_tools(db, parts.clock), *parts.tools))
        catalog = Catalog(functions.all())
        limits = Limits(settings.mcp_commands, settings.mcp_private)
        self.pool = Pool(db, self.seal, connector(limits))
        servers = ToolServers(
            db=db, clock=parts.clock, seal=self.seal, pool=self.pool, limits=limits, reserved=catalog.reserved
        )
        self.server_tools = ToolServerRunner(
            self.pool, ToolServerMetrics(self.registry, self.pool.census), timeout=settings.tool_timeout
        )
        runner = CompositeRunner(
            Runners(
                builtin=functions,
                python=PythonRunner(parts.sandbox or self.sandbox, self._secrets),
                remote=self.server_tools,
                mcp=self.server_tools,
            ),
            seconds=settings.tool_timeout,
            metrics=ToolMetrics(self.registry),
            clock=parts.clock,
        )
        metrics, weights = RunMetrics(self.registry), Weights()
        ttl = settings.approval_ttl
        engine = Engine(
            db=db,
            clock=parts.clock,
            models=models,
            catalog=catalog,
            runner=runner,
            log=self.log,
            feed=self.feed,
            metrics=metrics,
            node=new_id(Prefix.NODE),
            default_model=settings.default_model,
            approval_ttl=ttl.total_seconds() if ttl else 0.0,
            weights=weights,
            traces=self.traces,
        )
        self.supervisor = Supervisor(
            engine,
            address=settings.grpc_address,
            max_runs=settings.max_runs,
            embedded=db.dialect == "sqlite",
            retention=settings.event_retention,
        )
        self.callbacks = CallbackRelay(
            db=db,
            clock=parts.clock,
            http=http,
            private=settings.callback_private,
            seal=self.seal,
            render=render_callback,
            registry=self.registry,
        )
        self.compactor = Compactor(
            db=db,
            clock=parts.clock,
            models=models,
            default_model=settings.default_model,
            weights=weights,
            metrics=metrics.compactions,
        )
        self.servicers = self._servicers(settings, models, ModelList(own, parts.clock), catalog, runner, servers)

    async def _secrets(self, organization_id: str, agent_id: str) -> Mapping[str, str]:
        return await self.db.read(secrets.load, self.seal, agent_id)

    def _servicers(
        self,
        settings: Settings,
        models: Models,
        listed: ModelList,
        catalog: Catalog,
        runner: ToolRunner,
        servers: ToolServers,
    ) -> Servicers:
        runs = RunServicer(
            db=self.db,
            clock=self.clock,
            supervisor=self.supervisor,
            log=self.log,
            knows_model=models.knows,
            traces=self.traces,
            check_callback=self.callbacks.check,
        )
        local = LocalChannel()
        add_RunServiceServicer_to_server(runs, cast("grpc.aio.Server", local))
        stub = RunServiceStub(cast("grpc.aio.Channel", local))

        async def cancel_runs(agent_id: str) -> None:
            request = run_service_pb2.CancelRunsRequest(agent_id=agent_id, reason="the agent is deleted")
            request.wait.FromSeconds(10)
            await stub.CancelRuns(request)

        return Servicers(
            agents=AgentServicer(
                db=self.db,
                clock=self.clock,
                catalog=catalog,
                seal=self.seal,
                knows_model=models.knows,
                default_model=settings.default_model,
                cancel_runs=cancel_runs,
            ),
            blocks=BlockServicer(db=self.db, clock=self.clock),
            conversations=ConversationServicer(
                db=self.db,
                clock=self.clock,
                catalog=catalog,
                knows_model=models.knows,
                default_model=settings.default_model,
                compactor=self.compactor,
            ),
            tools=ToolServicer(
                db=self.db,
                clock=self.clock,
                catalog=catalog,
                runner=runner,
                servers=servers,
                allow_pip=settings.tool_requirements,
            ),
            models=ModelServicer(db=self.db, clock=self.clock, seal=self.seal, models=listed),
            messages=MessageServicer(
                db=self.db,
                runs=stub,
                previews=Previews(db=self.db, catalog=catalog, models=models, default_model=settings.default_model),
            ),
            runs=runs,
            approvals=ApprovalServicer(
                db=self.db,
                clock=self.clock,
                supervisor=self.supervisor,
                feed=self.feed,
                watch=ApprovalWatch(self.db, self.clock, self.feed, settings.heartbeat_seconds),
            ),
        )


def _models(
    settings: Settings, parts: Parts, stored: StoredProviders, http: httpx2.AsyncClient, metrics: ModelMetrics
) -> ProviderModels:
    """The built-in models, those of the environment, and those that organizations bring."""
    environ = os.environ if parts.environ is None else parts.environ
    demo = Source(DemoProvider(), tuple(ModelInfo(name, CONTEXT_WINDOW) for name in DEMO_MODELS))
    return ProviderModels({DEMO: demo, **providers(environ, http, metrics, settings.openai_api)}, stored)


def _chain(settings: Settings, node: Node) -> tuple[Interceptor, ...]:
    limits = ChainLimits(
        deadline_seconds={
            "/bridle.v1.MessageService/SendMessage": _SEND_MESSAGE_SECONDS,
            "/bridle.v1.ConversationService/CompactConversation": _COMPACT_SECONDS,
            "/bridle.v1.ToolService/RunTool": _RUN_TOOL_SECONDS,
        },
        max_concurrent_calls=settings.max_unary,
        max_concurrent_streams=settings.max_streams,
    )
    return build_chain(
        clock=node.clock,
        metrics=node.metrics,
        authenticator=Anonymous(),
        translate=db_errors.translate,
        limits=limits,
    )


def build_grpc(settings: Settings, node: Node, health: Health, chain: tuple[Interceptor, ...]) -> grpc.aio.Server:
    """The gRPC server with its interceptors and services, not yet listening."""
    server = build_server(chain, settings.max_message_bytes)
    add_infrastructure(server, health, register(ByName(server), node.servicers, settings.roles))
    return server


@asynccontextmanager
async def _backend(
    settings: Settings, node: Node | None, chain: tuple[Interceptor, ...]
) -> AsyncIterator[Backend | None]:
    """What the gateway talks to: the services of this process behind the same chain, or those of another one."""
    if "gateway" not in settings.roles:
        yield None
    elif settings.grpc_target:
        async with open_channel(settings.grpc_target, SERVICES) as channel:
            yield Backend(channel, remote=True)
    elif node is None or not {"agents", "messages", "runs"} <= set(settings.roles):
        raise StartupError("a gateway whose process does not host every service needs BRIDLE_GRPC_TARGET")
    else:
        local = InProcessChannel(chain)
        register(local, node.servicers, settings.roles)
        yield Backend(local, remote=False)


def _gateway_config(settings: Settings) -> GatewayConfig:
    return GatewayConfig(settings.max_body_bytes, settings.cors_origins)


class Serving(Struct, frozen=True):
    """A node that listens."""

    node: Node
    grpc_address: str
    http_address: str


@asynccontextmanager
async def running(settings: Settings, parts: Parts = Parts()) -> AsyncIterator[Serving]:  # noqa: B008 - frozen
    """Serve for the duration of the block, then drain: no new runs, checkpoints, streams end with a cursor, stop."""
    # The folder's lock first: a second server must not touch the first one's schema.
    db = open_database(settings.database, full_sync=settings.sqlite_synchronous == "full")
    http = http_client()
    try:
        await asyncio.to_thread(migrate.upgrade, settings.database)
        node, health = Node(settings, db, parts, http), Health()
        chain = _chain(settings, node)
        server = build_grpc(settings, node, health, chain)
        grpc_port = bind(server, settings.grpc_address)
        async with (
            _backend(settings, node, chain) as backend,
            http_server(
                create_app(node.registry, health.is_ready, backend, _gateway_config(settings)),
                settings.http_address,
                _STOP_SECONDS,
            ) as http_port,
        ):
            # Nobody waits for it but the first call of a Python tool.
            sandbox = asyncio.create_task(node.sandbox.start()) if parts.sandbox is None else None
            await server.start()
            await node.supervisor.start()
            relay = asyncio.create_task(node.callbacks.run())
            health.set_ready(True)
            watching = asyncio.create_task(_follow_database(db, health))
            try:
                yield Serving(
                    node, _with_port(settings.grpc_address, grpc_port), _with_port(settings.http_address, http_port)
                )
            finally:
                watching.cancel()
                health.enter_drain()
                await node.supervisor.drain(settings.drain_seconds)
                node.log.end()
                node.feed.end()
                if node.traces is not None:
                    await node.traces.settled()
                relay.cancel()
                await graceful_stop(server, _STOP_SECONDS)
                await node.pool.close()
                if sandbox is not None:
                    sandbox.cancel()
                    await asyncio.wait([sandbox])
                    await node.sandbox.close()
    finally:
        await http.aclose()
        await db.close()


async def _follow_database(db: Database, health: Health) -> None:
    """Ready as long as the database answers: others may be able to reach theirs."""
    while True:
        await asyncio.sleep(_PING_SECONDS)
        try:
            await db.ping()
        except Exception:
            if health.is_ready():
                logger.exception("not ready: the database does not answer")
            health.set_ready(False)
        else:
            if not health.is_ready():
                logger.warning("ready again: the database answers")
            health.set_ready(True)


@asynccontextmanager
async def running_gateway(settings: Settings) -> AsyncIterator[str]:
    """Serve HTTP only, for services that are elsewhere; its address. There is nothing to drain but calls."""
    registry, serving = CollectorRegistry(), True
    async with _backend(settings, None, ()) as backend:
        app = create_app(registry, lambda: serving, backend, _gateway_config(settings))
        async with http_server(app, settings.http_address, settings.drain_seconds) as port:
            yield _with_port(settings.http_address, port)
            serving = False


def _with_port(address: str, port: int) -> str:
    return f"{address.rpartition(':')[0]}:{port}"


async def serve(settings: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C; a second one stops at once."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()

    def on_signal() -> None:
        if stop.is_set() and task is not None:
            task.cancel()
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    with contextlib.suppress(asyncio.CancelledError):
        if settings.roles == ("gateway",):
            async with running_gateway(settings) as address:
                logger.info("ready", extra={"fields": {"http": address, "services": settings.grpc_target}})
                await stop.wait()
            return
        async with running(settings) as serving:
            # What is loaded by now stays; a full collection would look through it with everybody waiting, for 0.15 s.
            gc.freeze()
            _welcome(serving)
            await stop.wait()
            logger.info("draining")


def _welcome(serving: Serving) -> None:
    """Say what to try next, on the terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(
            f"\nBridle serves gRPC on {serving.grpc_address} and HTTP on {serving.http_address}.\n"
            "Try, in another terminal:\n"
            f"  .venv/bin/bridle chat --address {serving.grpc_address}\n"
            f"  grpcurl -plaintext {serving.grpc_address} list\n"
            f"  curl http://{serving.http_address}/metrics\n\n"
        )
    logger.info("ready", extra={"fields": {"grpc": serving.grpc_address, "http": serving.http_address}})


def main(settings: Settings) -> int:
    """Run the process; its exit code."""
    log.configure(settings.log_level, settings.log_format)
    uvloop.run(serve(settings))
    return 0
