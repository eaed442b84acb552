"""What an operator wants to know of the HTTP side."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from common.telemetry import names

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class HttpMetrics:
    """Requests by route and status, and the streams that are open."""

    def __init__(self, registry: CollectorRegistry) -> None:
        seconds = Histogram(
            names.HTTP_SERVER_SECONDS,
            "Time from the start of a request to the end of its answer.",
            ("method", "route", "status"),
            registry=registry,
            buckets=names.RPC_SECONDS_BUCKETS,
        )
        self.streams = Gauge(names.HTTP_STREAMS_OPEN, "Event streams that are open now.", registry=registry)
        self.events = Counter(names.HTTP_EVENTS_SENT, "Frames sent on event streams.", registry=registry)
        # Children are remembered: `labels()` costs more than counting.
        self.seconds = cache(lambda method, route, status: seconds.labels(method, route, status))
