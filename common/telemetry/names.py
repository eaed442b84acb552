"""Names of metrics and their buckets, in one place: dashboards and alerts depend on them."""

from __future__ import annotations

from typing import Final

RPC_SERVER_SECONDS: Final = "bridle_rpc_server_seconds"
RPC_SERVER_IN_FLIGHT: Final = "bridle_rpc_server_in_flight"
RPC_SERVER_MESSAGES_SENT: Final = "bridle_rpc_server_messages_sent_total"

# From a cached read to a run that takes minutes.
RPC_SECONDS_BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
)  # fmt: skip

HTTP_SERVER_SECONDS: Final = "bridle_http_server_seconds"
HTTP_STREAMS_OPEN: Final = "bridle_http_streams_open"
HTTP_EVENTS_SENT: Final = "bridle_http_events_sent_total"

RUNS_ACTIVE: Final = "bridle_runs_active"
RUNS_RECOVERED: Final = "bridle_runs_recovered_total"
RUN_SECONDS: Final = "bridle_run_duration_seconds"
RUN_QUEUE_SECONDS: Final = "bridle_run_queue_seconds"
FIRST_TOKEN_SECONDS: Final = "bridle_run_first_token_seconds"  # noqa: S105 - a metric, not a password
CANCEL_SECONDS: Final = "bridle_cancel_seconds"
RUNS_OPEN: Final = "bridle_runs_open"
QUEUE_AGE_SECONDS: Final = "bridle_run_queue_age_seconds"
APPROVAL_AGE_SECONDS: Final = "bridle_approval_age_seconds"
FENCED_WRITES: Final = "bridle_fenced_writes_total"
TOOL_SERVER_CALLS: Final = "bridle_tool_server_calls_total"
TOOL_SERVER_CONNECTIONS: Final = "bridle_tool_server_connections"
COMPACTIONS: Final = "bridle_compactions_total"
COMPACTION_TOKENS: Final = "bridle_compaction_tokens"
CALLBACKS: Final = "bridle_callbacks_total"

MODEL_CALLS: Final = "bridle_model_calls_total"
MODEL_RETRIES: Final = "bridle_model_retries_total"
MODEL_SECONDS: Final = "bridle_model_call_seconds"
MODEL_FIRST_TOKEN_SECONDS: Final = "bridle_model_first_token_seconds"  # noqa: S105 - a metric, not a password
MODEL_TOKENS: Final = "bridle_model_tokens_total"

# From a demo model's answer to an hour of tools.
RUN_SECONDS_BUCKETS: Final = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1200.0, 3600.0,
)  # fmt: skip
# Stop means stop: most of the interest is below 25 ms.
CANCEL_SECONDS_BUCKETS: Final = (
    0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
)  # fmt: skip
# From a small model's window to the largest there is.
COMPACTION_TOKENS_BUCKETS: Final = (
    500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 512_000, 1_000_000,
)  # fmt: skip

TOOL_SECONDS: Final = "bridle_tool_duration_seconds"
# From a built-in tool to one that waits for an hour.
TOOL_SECONDS_BUCKETS: Final = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0,
)  # fmt: skip
SANDBOX_LIVE: Final = "bridle_sandbox_calls_live"
SANDBOX_RESTARTS: Final = "bridle_sandbox_restarts_total"
SANDBOX_WALLS: Final = "bridle_sandbox_wall"
SANDBOX_CALL_SECONDS: Final = "bridle_sandbox_call_seconds"
# From a trivial function to one that runs into its time limit.
SANDBOX_SECONDS_BUCKETS: Final = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0)
