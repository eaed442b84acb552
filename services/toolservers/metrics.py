"""What an operator watches of tool servers. Never a server's name in a label: callers choose those."""

from collections import Counter as Tally
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from common.telemetry import names

Census = Callable[[], Iterable[tuple[str, bool]]]

_KINDS: Final = ("grpc", "mcp_stdio", "mcp_http")


class ToolServerMetrics:
    """Calls by what came of them, and connections by their health."""

    def __init__(self, registry: CollectorRegistry, census: Census = tuple) -> None:
        self._calls = Counter(
            names.TOOL_SERVER_CALLS,
            "Calls of tools that run on a tool server, by how they ended.",
            ("kind", "outcome"),
            registry=registry,
        )
        registry.register(_Connections(census))

    def called(self, kind: str, outcome: str) -> None:
        """A call has ended."""
        self._calls.labels(kind, outcome).inc()


class _Connections(Collector):
    """Counted when it is asked for."""

    def __init__(self, census: Census) -> None:
        self._census = census

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Every kind, with both states."""
        family = GaugeMetricFamily(
            names.TOOL_SERVER_CONNECTIONS, "Tool servers in use, by their health.", labels=("kind", "state")
        )
        tally = Tally(self._census())
        for kind in _KINDS:
            family.add_metric((kind, "healthy"), tally[kind, True])
            family.add_metric((kind, "unhealthy"), tally[kind, False])
        yield family
