"""What an operator watches of tools. Never a tool's name in a label: anybody can make up one."""

from prometheus_client import CollectorRegistry, Histogram

from common.telemetry import names


class ToolMetrics:
    """How calls end and how long they take."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._seconds = Histogram(
            names.TOOL_SECONDS,
            "Time from the start of a tool call to its end, by kind of tool and outcome.",
            ("kind", "outcome"),
            registry=registry,
            buckets=names.TOOL_SECONDS_BUCKETS,
        )

    def ended(self, kind: str, outcome: str, seconds: float) -> None:
        """A call is over."""
        self._seconds.labels(kind, outcome).observe(seconds)
