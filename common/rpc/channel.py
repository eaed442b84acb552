"""Client channels: the same options for the command line, the gateway and service-to-service calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
import grpc.aio
import msgspec

from common.rpc.server import DEFAULT_MAX_MESSAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

_READS: Final = ("Get", "List")

_RETRY_POLICY: Final = {
    "maxAttempts": 4,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    # CANCELLED: a grpc server that stops answers calls it has not taken up yet with that (grpc/grpc#41785).
    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
}


def service_config(services: Iterable[ServiceDescriptor], also_retry: Collection[str] = ()) -> dict[str, Any]:
    """Balance over all addresses; retry unary reads, and the methods (full names) of `also_retry`.

    A lost connection is UNAVAILABLE too, after the server may have acted: name a method that changes
    something only if the caller always sends a request_id with it.
    """
    retried = [
        {"service": method.containing_service.full_name, "method": method.name}
        for service in services
        for method in service.methods
        if _may_retry(method, also_retry)
    ]
    config: dict[str, Any] = {"loadBalancingConfig": [{"round_robin": {}}]}
    if retried:
        config["methodConfig"] = [{"name": retried, "retryPolicy": _RETRY_POLICY}]
        config["retryThrottling"] = {"maxTokens": 10, "tokenRatio": 0.1}
    return config


def channel_options(
    config: dict[str, Any], max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
) -> list[tuple[str, Any]]:
    """Channel arguments of a client."""
    return [
        ("grpc.service_config", msgspec.json.encode(config).decode()),
        ("grpc.enable_retries", 1),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 0),
    ]


def open_channel(
    target: str,
    services: Iterable[ServiceDescriptor] = (),
    *,
    also_retry: Collection[str] = (),
    credentials: grpc.ChannelCredentials | None = None,
) -> grpc.aio.Channel:
    """A channel to `host:port`, `dns:///name:port` or `unix:path`; every call on it needs a timeout."""
    options = channel_options(service_config(services, also_retry))
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, credentials, options=options)


def _may_retry(method: MethodDescriptor, also_retry: Collection[str]) -> bool:
    if method.client_streaming or method.server_streaming:
        return False
    return method.name.startswith(_READS) or method.full_name in also_retry
