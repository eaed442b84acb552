"""The one place that fixes which interceptors there are and in which order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from common.rpc.auth import AuthInterceptor
from common.rpc.context import ContextInterceptor
from common.rpc.deadline import DeadlineInterceptor
from common.rpc.errors import ErrorInterceptor
from common.rpc.limits import LimitInterceptor
from common.rpc.logging import LoggingInterceptor
from common.rpc.metrics import MetricsInterceptor

if TYPE_CHECKING:
    from common.clock import Clock
    from common.rpc.adapter import Interceptor
    from common.rpc.auth import Authenticator
    from common.rpc.errors import Translate
    from common.telemetry.metrics import Metrics


class ChainLimits(msgspec.Struct, frozen=True):
    """How long and how many. Methods that run an agent need a longer default than the others."""

    default_deadline_seconds: float = 30.0
    deadline_seconds: Mapping[str, float] = {}
    max_concurrent_calls: int = 1024
    max_concurrent_streams: int = 4096


def build_chain(
    *,
    clock: Clock,
    metrics: Metrics,
    authenticator: Authenticator,
    translate: Translate,
    limits: ChainLimits,
) -> tuple[Interceptor, ...]:
    """Outermost first. Log and metrics are outside of errors and auth: they see the final code."""
    return (
        ContextInterceptor(),
        LoggingInterceptor(clock),
        MetricsInterceptor(metrics.rpc, clock),
        ErrorInterceptor(translate),
        DeadlineInterceptor(limits.default_deadline_seconds, limits.deadline_seconds),
        LimitInterceptor(limits.max_concurrent_calls, limits.max_concurrent_streams),
        AuthInterceptor(authenticator),
    )
