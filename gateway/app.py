"""The HTTP application: the API if this process is a gateway, and for operators health, readiness and metrics."""

from collections.abc import Callable, Sequence
from functools import cache

import msgspec
from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from gateway import openapi, reference
from gateway.backend import Backend
from gateway.endpoints import ENDPOINTS, LATER
from gateway.http.metrics import HttpMetrics
from gateway.http.router import Router
from gateway.http.server import Api


class GatewayConfig(Struct, frozen=True):
    """How the API is served."""

    max_body_bytes: int
    cors_origins: Sequence[str] = ()


def create_app(
    registry: CollectorRegistry,
    ready: Callable[[], bool],
    backend: Backend | None = None,
    config: GatewayConfig | None = None,
) -> Starlette:
    """The application; `ready` says whether this process should get traffic, `backend` is what the API talks to."""

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def alive(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readiness(request: Request) -> Response:
        return JSONResponse({"ready": ready()}, status_code=200 if ready() else 503)

    routes: list[BaseRoute] = [Route("/metrics", metrics), Route("/healthz", alive), Route("/readyz", readiness)]
    middleware: list[Middleware] = []
    if backend is not None and config is not None:
        api = Api(Router(ENDPOINTS, LATER), backend, HttpMetrics(registry), config.max_body_bytes)
        routes += [Route("/openapi.json", _document), Route("/docs", _reference), Mount("/", api)]
        if config.cors_origins:
            middleware.append(_cors(config.cors_origins))
    return Starlette(routes=routes, middleware=middleware)


@cache
def _described() -> tuple[bytes, str]:
    """The API document and its page. Made when somebody first asks, in a thread: it takes a moment."""
    document = openapi.document(ENDPOINTS)
    return msgspec.json.encode(document), reference.page(document)


def _document(request: Request) -> Response:
    return Response(_described()[0], media_type="application/json")


def _reference(request: Request) -> Response:
    # The page has its style inside and needs nothing else.
    headers = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'"}
    return Response(_described()[1], media_type="text/html", headers=headers)


def _cors(origins: Sequence[str]) -> Middleware:
    return Middleware(
        CORSMiddleware,
        allow_origins=list(origins),
        allow_methods=["*"],
        allow_headers=["*"],
        expose_headers=["x-request-id", "x-should-retry", "retry-after"],
    )
