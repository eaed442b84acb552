"""Is it there?"""

from msgspec import Struct

from gateway import __version__
from gateway.http.endpoint import Empty, Endpoint, Exchange


class Health(Struct, frozen=True):
    """Which version, and how it is."""

    version: str
    status: str


async def health(_: Exchange[None, Empty]) -> Health:
    """Alive."""
    return Health(__version__, "ok")


ENDPOINTS = (
    Endpoint(method="GET", path="/v1/health", summary="Is it there?", tag="health", handler=health, answer=Health),
)
