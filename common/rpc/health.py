"""grpc.health.v1 with two questions kept apart: is the process alive, and should it get traffic."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.errors import Draining, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

OVERALL: Final = ""
LIVENESS: Final = "liveness"
READINESS: Final = "readiness"

_Response = health_pb2.HealthCheckResponse


class Health(health_pb2_grpc.HealthServicer):
    """Everything is NOT_SERVING until the first `set_ready(True)`.

    Liveness then stays SERVING: a lost database or a drain must not get the process killed. The
    library's own servicer is not used because its Watch never ends and so holds up a shutdown.
    """

    def __init__(self) -> None:
        self._status: dict[str, Any] = dict.fromkeys((OVERALL, LIVENESS, READINESS), _Response.NOT_SERVING)
        self._draining = False
        self._changed = asyncio.Event()

    def set_ready(self, ready: bool) -> None:
        """Say whether this process should get traffic; ignored once it drains."""
        if self._draining:
            return
        if ready == self.is_ready():
            return
        traffic = _Response.SERVING if ready else _Response.NOT_SERVING
        self._status[OVERALL] = self._status[READINESS] = traffic
        if ready:
            self._status[LIVENESS] = _Response.SERVING
        self._announce()

    def is_ready(self) -> bool:
        """Whether this process should get traffic."""
        return bool(self._status[READINESS] == _Response.SERVING)

    def enter_drain(self) -> None:
        """Not ready any more, for good; watchers are told and their streams end."""
        self.set_ready(False)
        self._draining = True
        self._announce()

    async def Check(self, request: health_pb2.HealthCheckRequest, context: Any) -> Any:
        """The status of one name now."""
        status = self._status.get(request.service)
        if status is None:
            raise NotFound("health service", request.service)
        return _Response(status=status)

    async def Watch(
        self, request: health_pb2.HealthCheckRequest, context: Any
    ) -> AsyncGenerator[health_pb2.HealthCheckResponse, None]:
        """The status of one name now and at every change, until the server drains."""
        told = None
        while True:
            changed = self._changed
            status = self._status.get(request.service, _Response.SERVICE_UNKNOWN)
            if status != told:
                yield _Response(status=status)
                told = status
                continue
            if self._draining:
                raise Draining
            await changed.wait()

    def _announce(self) -> None:
        # A fresh event for each change: every waiter of the old one wakes exactly once.
        self._changed.set()
        self._changed = asyncio.Event()
