"""Checks of tool servers. Each yields what is wrong, so that a request can be told everything at once."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from msgspec import Struct

from common.errors import FieldViolation
from common.net import ForbiddenAddress, check_url
from common.pb.bridle.v1 import tool_pb2
from services.wire import checks
from services.wire.checks import Found

_NAME: Final = re.compile(r"[a-z0-9-]{1,64}")
_TARGET: Final = re.compile(r"[!-~]{1,512}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_HEADER_VALUE: Final = re.compile(r"[\t -~]*")
# What the transport sets itself, and what would change who is being talked to.
_OWN_HEADERS: Final = frozenset(
    {"accept", "connection", "content-length", "content-type", "host", "last-event-id", "mcp-protocol-version"}
    | {"mcp-session-id", "te", "trailer", "transfer-encoding", "upgrade"}
)
_MAX_PEM: Final = 64 * 1024
_MAX_SECRETS: Final = 64
_MAX_SECRET_BYTES: Final = 64 * 1024
_MAX_WORDS: Final = 64
_MAX_WORD: Final = 4096


class Limits(Struct, frozen=True):
    """What the operator allows."""

    # The beginnings of commands that may be started.
    commands: tuple[tuple[str, ...], ...] = ()
    # Whether MCP servers may be on private addresses.
    private: bool = False


def server(field: str, given: tool_pb2.ToolServer, limits: Limits) -> Found:
    """A tool server."""
    yield from server_name(f"{field}.name", given.name)
    match given.WhichOneof("connection"):
        case "grpc":
            yield from _grpc(f"{field}.grpc", given.grpc)
        case "mcp_stdio":
            yield from _stdio(f"{field}.mcp_stdio", given.mcp_stdio, limits.commands)
        case "mcp_http":
            yield from _http(f"{field}.mcp_http", given.mcp_http, private=limits.private)
        case _:
            yield FieldViolation(f"{field}.connection", "must be grpc, mcp_stdio or mcp_http")


def server_name(field: str, name: str) -> Found:
    """What a tool server can be called."""
    if not name:
        yield FieldViolation(field, "is required")
    elif not _NAME.fullmatch(name):
        yield FieldViolation(field, "must be 1 to 64 lower-case letters, digits and dashes")


def is_allowed(command: Sequence[str], allowed: Sequence[Sequence[str]]) -> bool:
    """Whether a command begins like one that the operator has allowed."""
    return any(list(command[: len(beginning)]) == list(beginning) for beginning in allowed)


def _grpc(field: str, given: tool_pb2.ToolServer.Grpc) -> Found:
    if not given.target:
        yield FieldViolation(f"{field}.target", "is required")
    elif not _TARGET.fullmatch(given.target):
        yield FieldViolation(f"{field}.target", "must be at most 512 printable ASCII characters without spaces")
    for name in ("ca_pem", "certificate_pem", "key_pem"):
        value = getattr(given, name)
        yield from checks.size_in_bytes(f"{field}.{name}", value, _MAX_PEM)
        if value and given.plaintext:
            yield FieldViolation(f"{field}.{name}", "must be empty with plaintext")
    if given.ca_pem and not _certificates(given.ca_pem):
        yield FieldViolation(f"{field}.ca_pem", "must be certificates as PEM")
    if given.key_pem and not given.certificate_pem:
        yield FieldViolation(f"{field}.certificate_pem", "is required with key_pem")
    if given.certificate_pem:
        yield from _pair(field, given)


def _pair(field: str, given: tool_pb2.ToolServer.Grpc) -> Found:
    certificates = _certificates(given.certificate_pem)
    if not certificates:
        yield FieldViolation(f"{field}.certificate_pem", "must be certificates as PEM")
    if not given.key_pem:
        # It may have been stored before; the servicer knows.
        return
    public = _public_part(given.key_pem)
    if public is None:
        yield FieldViolation(f"{field}.key_pem", "must be a private key as PEM, without a password")
    elif certificates and public != _public(certificates[0].public_key()):
        yield FieldViolation(f"{field}.key_pem", "does not belong to the first certificate of certificate_pem")


def _certificates(pem: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem.encode())
    except ValueError:
        return []


def _public_part(pem: str) -> bytes | None:
    try:
        return _public(load_pem_private_key(pem.encode(), None).public_key())
    except (ValueError, TypeError):  # not a key; one with a password
        return None


def _public(key: object) -> bytes:
    encoded: bytes = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)  # type: ignore[attr-defined]
    return encoded


def _stdio(field: str, given: tool_pb2.ToolServer.McpStdio, allowed: Sequence[Sequence[str]]) -> Found:
    command = list(given.command)
    if not command:
        yield FieldViolation(f"{field}.command", "is required")
    yield from checks.count(f"{field}.command", command, _MAX_WORDS)
    for number, word in enumerate(command):
        yield from checks.text(f"{field}.command[{number}]", word, least=0 if number else 1, most=_MAX_WORD)
    if command and not is_allowed(command, allowed):
        yield FieldViolation(f"{field}.command", "is not one that this server may start (BRIDLE_MCP_COMMANDS)")
    yield from _secrets(f"{field}.env", given.env)
    for name, value in sorted(given.env.items()):
        if not _VARIABLE.fullmatch(name):
            yield FieldViolation(f"{field}.env", f"has '{name[:64]}', which is not the name of a variable")
        yield from checks.text(f"{field}.env[{name[:64]}]", value, most=_MAX_SECRET_BYTES)


def _http(field: str, given: tool_pb2.ToolServer.McpHttp, *, private: bool) -> Found:
    yield from _url(f"{field}.url", given.url, private=private)
    yield from _secrets(f"{field}.headers", given.headers)
    names = [name.lower() for name in given.headers]
    if len(set(names)) < len(names):
        yield FieldViolation(f"{field}.headers", "has a name twice, in different case")
    for name, value in sorted(given.headers.items()):
        if not _HEADER.fullmatch(name):
            yield FieldViolation(f"{field}.headers", f"has '{name[:64]}', which is not the name of a header")
        elif name.lower() in _OWN_HEADERS:
            yield FieldViolation(f"{field}.headers", f"has '{name}', which is set by the server")
        if not _HEADER_VALUE.fullmatch(value):
            yield FieldViolation(f"{field}.headers[{name[:64]}]", "must be printable ASCII")


def _url(field: str, url: str, *, private: bool) -> Found:
    if not url:
        yield FieldViolation(field, "is required")
        return
    try:
        parts = check_url(url, private=private)
    except ForbiddenAddress as error:
        yield FieldViolation(field, str(error))
        return
    if parts.fragment:
        yield FieldViolation(field, "must have no fragment")


def _secrets(field: str, values: Mapping[str, str]) -> Found:
    yield from checks.count(field, values, _MAX_SECRETS)
    if sum(len(name.encode()) + len(value.encode()) for name, value in values.items()) > _MAX_SECRET_BYTES:
        yield FieldViolation(field, f"must have at most {_MAX_SECRET_BYTES:,} bytes")
