"""What an operator watches of runs. Never a run id in a label."""

from datetime import datetime, timedelta

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from common.telemetry import names
from services.context.metrics import CompactionMetrics
from services.runs.model import Run
from services.runs.store.census import Census


class RunMetrics:
    """The engine's metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.compactions = CompactionMetrics(registry)
        self.active = Gauge(names.RUNS_ACTIVE, "Runs that an actor of this node works on.", registry=registry)
        self.fenced = Counter(
            names.FENCED_WRITES, "Writes refused because the run had another owner.", registry=registry
        )
        self.recovered = Counter(names.RUNS_RECOVERED, "Runs taken from owners that were gone.", registry=registry)
        self._open = Gauge(names.RUNS_OPEN, "Runs of all nodes that have not stopped.", ("state",), registry=registry)
        self._queue_age = Gauge(names.QUEUE_AGE_SECONDS, "Age of the oldest queued run.", registry=registry)
        self._approval_age = Gauge(names.APPROVAL_AGE_SECONDS, "Age of the oldest open approval.", registry=registry)
        self._stopped = Histogram(
            names.RUN_SECONDS,
            "Time from the start of a run to its stop.",
            ("state",),
            registry=registry,
            buckets=names.RUN_SECONDS_BUCKETS,
        )
        self._queued = Histogram(
            names.RUN_QUEUE_SECONDS,
            "Time a run waited for its turn.",
            registry=registry,
            buckets=names.RUN_SECONDS_BUCKETS,
        )
        self._first_token = Histogram(
            names.FIRST_TOKEN_SECONDS,
            "Time from the start of a run's first model call to its first token.",
            registry=registry,
            buckets=names.RUN_SECONDS_BUCKETS,
        )
        self._cancel = Histogram(
            names.CANCEL_SECONDS,
            "Time from a durable cancel to the durable final state, by what it struck.",
            ("phase",),
            registry=registry,
            buckets=names.CANCEL_SECONDS_BUCKETS,
        )

    def counted(self, census: Census, now: datetime) -> None:
        """What is open in the whole database, as of now."""
        for state, count in census.runs.items():
            self._open.labels(state).set(count)
        self._queue_age.set(_age(census.oldest_queued, now))
        self._approval_age.set(_age(census.oldest_approval, now))

    def started(self, run: Run) -> None:
        """A run was taken up for the first time."""
        if run.started_at is not None:
            self._queued.observe(_seconds(run.started_at - run.created_at))

    def stopped(self, run: Run) -> None:
        """A run reached a final state."""
        if run.started_at is not None and run.stopped_at is not None:
            self._stopped.labels(run.state).observe(_seconds(run.stopped_at - run.started_at))
        if run.outcome.first_token_us is not None:
            self._first_token.observe(run.outcome.first_token_us / 1e6)
        receipt = run.outcome.cancel
        if receipt is not None and receipt.terminal_at is not None and receipt.phase is not None:
            self._cancel.labels(receipt.phase).observe(_seconds(receipt.terminal_at - receipt.requested_at))


def _age(since: datetime | None, now: datetime) -> float:
    return 0.0 if since is None else _seconds(now - since)


def _seconds(span: timedelta) -> float:
    # Clocks of two nodes may disagree by a little.
    return max(0.0, span.total_seconds())
