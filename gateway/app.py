"""The HTTP side. For now: is it alive, is it ready, and its metrics."""

from collections.abc import Callable

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def create_app(registry: CollectorRegistry, ready: Callable[[], bool]) -> Starlette:
    """The application; `ready` says whether this process should get traffic."""

    async def metrics(request: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    async def alive(request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readiness(request: Request) -> Response:
        return JSONResponse({"ready": ready()}, status_code=200 if ready() else 503)

    return Starlette(
        routes=[Route("/metrics", metrics), Route("/healthz", alive), Route("/readyz", readiness)],
    )
