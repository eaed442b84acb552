"""The child task that has older messages summarised, so that the next model call fits."""

import logging
from collections.abc import Awaitable, Callable

from services.context.metrics import CompactionMetrics
from services.context.summary import PASSING, SummaryCall, SummaryJob
from services.models import tokens
from services.models.api import Models
from services.models.errors import ModelError, ModelErrorType
from services.runs.model import RunError, StopReason, Trigger, Usage
from services.runs.protocol import Cancelled, Compact, Compacted, CompactionFailed
from services.runs.work import INTERNAL_ERROR

logger = logging.getLogger(__name__)


class CompactionWork:
    """One summary on its way. Clients see nothing of it before it is done."""

    streaming = False

    def __init__(self, effect: Compact, organization_id: str, metrics: CompactionMetrics) -> None:
        self._effect = effect
        self._organization_id = organization_id
        self._metrics = metrics
        self._call: SummaryCall | None = None

    async def run(self, models: Models, prepare: Callable[[], Awaitable[SummaryJob]]) -> Compacted | CompactionFailed:
        """Have it written; its outcome is the return value, never an exception."""
        try:
            job = await prepare()
        except ModelError as error:
            # Nobody was asked: no cut can help, so no other attempt can.
            return self._failure(self._hopeless(error), error.stop_reason, again=False)
        except Exception:
            logger.exception("a compaction broke")
            return self._failure(INTERNAL_ERROR, StopReason.ERROR, again=False)
        self._call = SummaryCall(job)
        try:
            summary = await self._call.run(models, self._organization_id)
        except ModelError as error:
            return self._failure(error.as_run_error(), error.stop_reason, again=error.kind in PASSING)
        except Exception:
            logger.exception("a compaction broke")
            return self._failure(INTERNAL_ERROR, StopReason.ERROR, again=False)
        plan = job.plan
        after = plan.tokens_kept + tokens.PER_MESSAGE + tokens.count(summary)
        self._metrics.done(self._effect.trigger, plan.tokens_before, after)
        return Compacted(summary, plan.floor, plan.messages_before, plan.messages_after, self._usage())

    def cut(self) -> Cancelled:
        """What is left of it when it is cancelled: what it has cost."""
        self._metrics.cancelled(self._effect.trigger)
        return Cancelled(usage=self._usage())

    def _hopeless(self, error: ModelError) -> RunError:
        """What a provider said itself is worth more than what we make of it."""
        told = error.kind is ModelErrorType.CONTEXT_WINDOW_EXCEEDED and self._effect.trigger is Trigger.PROVIDER
        return self._effect.error if told else error.as_run_error()

    def _failure(self, error: RunError, reason: StopReason, *, again: bool) -> CompactionFailed:
        self._metrics.failed(self._effect.trigger)
        return CompactionFailed(error, reason, self._effect.trigger, again, self._usage(failed=True))

    def _usage(self, *, failed: bool = False) -> Usage:
        return Usage() if self._call is None else self._call.usage(failed=failed)
