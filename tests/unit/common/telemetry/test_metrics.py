"""common/telemetry/metrics.py"""

from prometheus_client import CollectorRegistry, generate_latest

from common.telemetry.metrics import Metrics


def test_two_processes_worth_of_metrics_do_not_meet() -> None:
    first, second = Metrics(CollectorRegistry()), Metrics(CollectorRegistry())
    first.rpc.sent("/a/B").inc()
    assert b'bridle_rpc_server_messages_sent_total{method="/a/B"} 1.0' in generate_latest(first.registry)
    assert b"/a/B" not in generate_latest(second.registry)


def test_names_and_units() -> None:
    metrics = Metrics(CollectorRegistry())
    metrics.rpc.seconds("/a/B", "OK").observe(0.2)
    metrics.rpc.in_flight("/a/B").inc()
    text = generate_latest(metrics.registry).decode()
    assert 'bridle_rpc_server_seconds_bucket{code="OK",le="0.25",method="/a/B"} 1.0' in text
    assert 'bridle_rpc_server_in_flight{method="/a/B"} 1.0' in text
