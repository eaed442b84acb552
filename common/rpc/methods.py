"""Which methods are the server's own plumbing rather than the product's."""

from __future__ import annotations

from typing import Final

_INFRASTRUCTURE: Final = ("/grpc.health.", "/grpc.reflection.")


def is_infrastructure(method: str) -> bool:
    """Health and reflection: no auth (probes have no credentials), no limits, no access log."""
    return method.startswith(_INFRASTRUCTURE)
