"""Builds, binds and stops the gRPC server."""

from __future__ import annotations

import errno
import socket
from typing import TYPE_CHECKING, Any, Final, cast

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from common.rpc.adapter import ChainAdapter
from common.startup import StartupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from common.rpc.adapter import Interceptor
    from common.rpc.health import Health

DEFAULT_MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024


class BindError(StartupError):
    """The address cannot be listened on."""


class PortInUse(BindError):
    """Somebody else listens on the address."""


def server_options(max_message_bytes: int) -> list[tuple[str, int]]:
    """Channel arguments of the server."""
    return [
        # Without this a second server binds the same port silently and takes half of the calls.
        ("grpc.so_reuseport", 0),
        ("grpc.max_receive_message_length", max_message_bytes),
        ("grpc.max_send_message_length", max_message_bytes),
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 0),
        # Clients may ping every minute; the default of five minutes would throw them out.
        ("grpc.http2.min_ping_interval_without_data_ms", 30_000),
        # Connections are renewed so that clients find new replicas. The grace outlasts the longest
        # unary call; a stream that outlives it ends with UNAVAILABLE and resumes from its cursor.
        ("grpc.max_connection_age_ms", 30 * 60_000),
        ("grpc.max_connection_age_grace_ms", 15 * 60_000),
    ]


def build_server(
    interceptors: Sequence[Interceptor], max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
) -> grpc.aio.Server:
    """A server with our chain and options; needs a running event loop."""
    return grpc.aio.server(interceptors=[ChainAdapter(interceptors)], options=server_options(max_message_bytes))


class ByName:
    """Stands for a server where generated code adds a service to it: its methods are found by their names.

    grpc.aio keeps a future for each method that is registered and goes through all of them, twice, at every call.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._server = server

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Add a service."""
        self._server.add_generic_rpc_handlers(handlers)

    def add_registered_method_handlers(self, service: str, handlers: Any) -> None:
        """Generated code calls this too; the generic handlers say the same."""


def add_infrastructure(server: grpc.aio.Server, health: Health, services: Iterable[str]) -> None:
    """Add health, and reflection that lists `services` and itself."""
    health_pb2_grpc.add_HealthServicer_to_server(health, cast("grpc.aio.Server", ByName(server)))
    names = (*services, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name)
    reflection.enable_server_reflection((*names, reflection.SERVICE_NAME), server)


def bind(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
    """Listen on `host:port` (0 = any free port) or `unix:path`; the port, or BindError."""
    if not address.startswith("unix:"):
        _check_free(address)
    try:
        if credentials is None:
            return server.add_insecure_port(address)
        return server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise BindError(f"cannot listen on {address}") from error


async def graceful_stop(server: grpc.aio.Server, grace: float) -> None:
    """Refuse new calls, let open ones finish within `grace` seconds, cancel the rest.

    End long streams before calling this: one open stream makes it take the whole grace.
    """
    await server.stop(grace)


def _check_free(address: str) -> None:
    """Try each resolved address with a plain socket: grpc does not say why it could not bind,
    and is content with one of several addresses of a name."""
    host, _, port = address.rpartition(":")
    try:
        if int(port) not in range(65536):  # getaddrinfo would wrap it around
            raise ValueError(port)
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, ValueError):
        raise BindError(f"cannot listen on {address}: not a known host and port") from None
    for family, kind, protocol, _, target in found:
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(target)
            except OSError as error:
                raise _bind_error(address, error) from None


def _bind_error(address: str, error: OSError) -> BindError:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(f"cannot listen on {address}: the port is in use")
    return BindError(f"cannot listen on {address}: {error.strerror}")
