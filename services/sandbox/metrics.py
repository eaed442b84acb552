"""What an operator watches of the sandbox."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.telemetry import names
from services.sandbox.model import Reason, Wall, Walls


class SandboxMetrics:
    """The sandbox's metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.live = Gauge(names.SANDBOX_LIVE, "Calls that run in the sandbox now.", registry=registry)
        self.restarts = Counter(
            names.SANDBOX_RESTARTS, "Times that the sandbox's process ended and was started again.", registry=registry
        )
        self._walls = Gauge(names.SANDBOX_WALLS, "Whether a wall stands.", ("wall",), registry=registry)
        self._calls = Histogram(
            names.SANDBOX_CALL_SECONDS,
            "Time of a call in the sandbox, by how it ended.",
            ("reason",),
            registry=registry,
            buckets=names.SANDBOX_SECONDS_BUCKETS,
        )

    def found(self, walls: Walls) -> None:
        """The walls are known."""
        for wall in Wall:
            self._walls.labels(wall).set(wall in walls.standing)

    def ended(self, reason: Reason | None, seconds: float) -> None:
        """A call is over; None: it was cancelled."""
        self._calls.labels(reason or "cancelled").observe(seconds)
