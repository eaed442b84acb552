"""As much of HTTP/1.1 as the vendors' clients use. By hand, because a fake must also be able to break it."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import Struct

_MAX_HEAD = 64 * 1024
_MAX_BODY = 64 * 1024 * 1024

CHUNKED = ("transfer-encoding", "chunked")
LAST_CHUNK = b"0\r\n\r\n"


class Request(Struct, frozen=True):
    """A whole request; the names of its headers are in lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    keep_alive: bool = True
    query: dict[str, str] = {}


class HttpError(Exception):
    """What came is not a request that can be answered."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class RequestReader:
    """Collects bytes until they are a request."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._head: tuple[str, str, dict[str, str], bool] | None = None
        self._length = 0
        self._leave_wanted = False

    def leave_wanted(self) -> bool:
        """Whether the client waits for leave to send its body; it is told so once."""
        wanted, self._leave_wanted = self._leave_wanted, False
        return wanted

    def feed(self, data: bytes) -> None:
        """Take what came."""
        self._bytes += data

    def next(self) -> Request | None:
        """The next request, if all of it has come. Raises HttpError."""
        if self._head is None and not self._read_head():
            return None
        if self._head is None or len(self._bytes) < self._length:
            return None
        body = bytes(self._bytes[: self._length])
        del self._bytes[: self._length]
        (method, target, headers, keep_alive), self._head = self._head, None
        path, _, query = target.partition("?")
        return Request(method, path, headers, body, keep_alive, dict(parse_qsl(query)))

    def _read_head(self) -> bool:
        end = self._bytes.find(b"\r\n\r\n")
        if end < 0:
            if len(self._bytes) > _MAX_HEAD:
                raise HttpError(431, "the head of the request is too long")
            return False
        lines = self._bytes[:end].decode("latin-1").split("\r\n")
        del self._bytes[: end + 4]
        try:
            method, path, version = lines[0].split(" ")
            pairs = [line.split(":", 1) for line in lines[1:]]
            headers = {name.strip().lower(): value.strip() for name, value in pairs}
            self._length = int(headers.get("content-length", "0"))
        except ValueError:
            raise HttpError(400, "this is not HTTP/1.1") from None
        self._check_length(headers)
        keep_alive = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        self._head = (method, path, headers, keep_alive)
        self._leave_wanted = headers.get("expect", "").lower() == "100-continue"
        return True

    def _check_length(self, headers: Mapping[str, str]) -> None:
        if "transfer-encoding" in headers:
            raise HttpError(411, "send the body with a content-length")
        if not 0 <= self._length <= _MAX_BODY:
            raise HttpError(413, f"the body may have {_MAX_BODY} bytes at most")


def head(status: int, *headers: tuple[str, str]) -> bytes:
    """Status line and headers."""
    # 529 is Anthropic's own.
    phrase = "Overloaded" if status == 529 else HTTPStatus(status).phrase if status in _STATUSES else "Unknown"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")


_STATUSES = frozenset(HTTPStatus)


def json_response(status: int, value: Any, *headers: tuple[str, str]) -> tuple[bytes, bytes]:
    """Head and body of an answer in JSON."""
    body = msgspec.json.encode(value)
    return head(status, ("content-type", "application/json"), ("content-length", str(len(body))), *headers), body


def chunk(data: bytes) -> bytes:
    """A piece of a body whose length is not known in advance."""
    return b"%x\r\n%b\r\n" % (len(data), data)
