"""What an operator watches of compactions."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from common.telemetry import names


class CompactionMetrics:
    """How often conversations are compacted, why, and what it comes to."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ended = Counter(
            names.COMPACTIONS, "Compactions by what started them and how they ended.", ("trigger", "outcome"),
            registry=registry,
        )  # fmt: skip
        self._tokens = Histogram(
            names.COMPACTION_TOKENS,
            "What a request weighed before a compaction and weighs after it.",
            ("when",),
            registry=registry,
            buckets=names.COMPACTION_TOKENS_BUCKETS,
        )

    def done(self, trigger: str, before: int, after: int) -> None:
        """A summary took the place of older messages."""
        self._ended.labels(trigger, "done").inc()
        self._tokens.labels("before").observe(before)
        self._tokens.labels("after").observe(after)

    def failed(self, trigger: str) -> None:
        """No summary came of it."""
        self._ended.labels(trigger, "failed").inc()

    def cancelled(self, trigger: str) -> None:
        """The run was stopped meanwhile."""
        self._ended.labels(trigger, "cancelled").inc()
