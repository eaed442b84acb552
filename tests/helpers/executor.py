"""A real ToolExecutor in this process, with TLS if a test wants it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import grpc
import grpc.aio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from google.protobuf.struct_pb2 import Struct
from grpc_health.v1 import health_pb2, health_pb2_grpc

from common.pb.bridle.v1 import message_pb2, tool_executor_pb2, tool_executor_pb2_grpc
from tests.helpers.inprocess import text_part

Response = tool_executor_pb2.ExecuteToolResponse
SUCCEEDED = message_pb2.ToolReturn.OUTCOME_SUCCEEDED
FAILED = message_pb2.ToolReturn.OUTCOME_FAILED


class Executor(tool_executor_pb2_grpc.ToolExecutorServicer):
    """Offers what it is told to, and remembers what was asked of it."""

    def __init__(self) -> None:
        self.offers = [offer("echo", idempotent=True, parallel=True), offer("slow"), offer("strange")]
        self.asked: list[tool_executor_pb2.ExecuteToolRequest] = []
        self.deadlines: list[float | None] = []
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.answer: list[Response] = []

    async def ListExecutorTools(self, request: Any, context: Any) -> tool_executor_pb2.ListExecutorToolsResponse:
        return tool_executor_pb2.ListExecutorToolsResponse(tools=self.offers)

    async def ExecuteTool(self, request: Any, context: Any) -> AsyncIterator[Response]:
        self.asked.append(request)
        self.deadlines.append(context.time_remaining())
        if request.name == "slow":
            yield Response(progress="waiting")
            await self._wait()
        elif request.name == "strange":
            for each in self.answer:
                yield each
        elif request.name == "echo":
            yield Response(result=returned(request.arguments))
        else:
            await context.abort(grpc.StatusCode.NOT_FOUND, f"there is no tool {request.name}")

    async def _wait(self) -> None:
        self.started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


class Health(health_pb2_grpc.HealthServicer):
    """Says what it is told to."""

    def __init__(self) -> None:
        self.status: Any = health_pb2.HealthCheckResponse.SERVING
        self.checks = 0

    async def Check(self, request: Any, context: Any) -> health_pb2.HealthCheckResponse:
        self.checks += 1
        return health_pb2.HealthCheckResponse(status=self.status)


class ExecutorServer:
    """Where an executor listens. It can be stopped and started again."""

    def __init__(self, credentials: grpc.ServerCredentials | None, *, with_health: bool) -> None:
        self.executor = Executor()
        self.health = Health()
        self._credentials = credentials
        self._with_health = with_health
        self._server: grpc.aio.Server | None = None
        self.port = 0

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        tool_executor_pb2_grpc.add_ToolExecutorServicer_to_server(self.executor, self._server)
        if self._with_health:
            health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        address = f"127.0.0.1:{self.port}"
        if self._credentials is None:
            self.port = self._server.add_insecure_port(address)
        else:
            self.port = self._server.add_secure_port(address, self._credentials)
        await self._server.start()

    async def stop(self) -> None:
        """Hang up on everybody."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None


@asynccontextmanager
async def executor_server(
    credentials: grpc.ServerCredentials | None = None, *, with_health: bool = True
) -> AsyncIterator[ExecutorServer]:
    """A server for the length of a block."""
    server = ExecutorServer(credentials, with_health=with_health)
    await server.start()
    try:
        yield server
    finally:
        with contextlib.suppress(asyncio.CancelledError):
            await server.stop()


def offer(name: str, description: str = "A tool.", **fields: Any) -> tool_executor_pb2.ExecutorTool:
    """A tool that is offered."""
    parameters = Struct()
    parameters.update({"type": "object", "properties": {"text": {"type": "string"}}})
    return tool_executor_pb2.ExecutorTool(name=name, description=description, parameters=parameters, **fields)


def returned(*content: str | message_pb2.Part, outcome: int = SUCCEEDED, **fields: Any) -> message_pb2.ToolReturn:
    """What a tool returns."""
    parts = [text_part(part) if isinstance(part, str) else part for part in content]
    return message_pb2.ToolReturn(outcome=outcome, content=parts, **fields)  # type: ignore[arg-type]  # also bad ones


class Authority:
    """Signs certificates."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(self._name, self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.pem = _pem(builder.sign(self._key, hashes.SHA256()))

    def issue(self, name: str) -> tuple[str, str]:
        """A certificate for 127.0.0.1 and its key, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")])
        builder = _builder(subject, self._name, key.public_key()).add_extension(names, critical=False)
        secret = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return _pem(builder.sign(self._key, hashes.SHA256())), secret.decode()


def tls(authority: Authority, *, clients: Authority | None = None) -> grpc.ServerCredentials:
    """Credentials of a server; with `clients` it wants their certificates."""
    certificate, key = authority.issue("server")
    return grpc.ssl_server_credentials(
        [(key.encode(), certificate.encode())],
        root_certificates=clients.pem.encode() if clients else None,
        require_client_auth=clients is not None,
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: Any) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
