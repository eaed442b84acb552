"""The process's Prometheus metrics, on a registry that is handed in."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from common.telemetry import names

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class RpcMetrics:
    """What the RPC interceptor feeds. Children are remembered: `labels()` costs more than counting."""

    def __init__(self, registry: CollectorRegistry) -> None:
        seconds = Histogram(
            names.RPC_SERVER_SECONDS,
            "Time from the start of an RPC to its status.",
            ("method", "code"),
            registry=registry,
            buckets=names.RPC_SECONDS_BUCKETS,
        )
        in_flight = Gauge(names.RPC_SERVER_IN_FLIGHT, "RPCs being served now.", ("method",), registry=registry)
        sent = Counter(
            names.RPC_SERVER_MESSAGES_SENT,
            "Messages sent on response streams.",
            ("method",),
            registry=registry,
        )
        self.seconds = cache(lambda method, code: seconds.labels(method, code))
        self.in_flight = cache(lambda method: in_flight.labels(method))
        self.sent = cache(lambda method: sent.labels(method))


class Metrics:
    """All metrics of a process; one per composition root."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self.rpc = RpcMetrics(registry)
