"""MCP over streamable HTTP: a client that calls one server only, and that a broken answer does not break."""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2
from mcp.client.streamable_http import MCP_SESSION_ID, streamable_http_client

from common.net import ForbiddenAddress, resolve
from services.toolservers.api import UNREACHABLE, Fate

# Only reaching the server is limited here; how long a call may take is the call's affair.
_TIMEOUT: Final = httpx2.Timeout(None, connect=5.0)
_PORTS: Final = {"http": 80, "https": 443}


@asynccontextmanager
async def http_transport(
    url: str, headers: Mapping[str, str], max_bytes: int, session: Fate, *, private: bool
) -> AsyncGenerator[Any, None]:
    """The streams of a session at this address."""
    guard = _Guard(max_bytes, session, private=private)
    async with (
        # Not the environment's proxies: they would be asked for what must not be called.
        httpx2.AsyncClient(headers=dict(headers), timeout=_TIMEOUT, transport=guard, trust_env=False) as client,
        streamable_http_client(url, http_client=client, max_sse_event_size=max_bytes) as streams,
    ):
        yield streams


class _Guard(httpx2.AsyncBaseTransport):
    """Connects to checked addresses only, bounds answers, and answers itself where there is none.

    An error that left the transport would end the session and with it all other calls.
    """

    def __init__(self, max_bytes: int, session: Fate, *, private: bool) -> None:
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)
        self._max_bytes = max_bytes
        self._session = session
        self._private = private

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request."""
        try:
            response = await self._inner.handle_async_request(await self._pinned(request))
        except ForbiddenAddress as error:
            return _refusal(str(error))
        except httpx2.TransportError as error:
            return _refusal(_reason(error))
        if response.status_code == 404 and MCP_SESSION_ID in request.headers:
            self._session.forget()
        content_type = response.headers.get("content-type", "")
        # Streams have a bound for each event.
        if not content_type.startswith("text/event-stream"):
            response.stream = _Bounded(response.stream, self._max_bytes)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()

    async def _pinned(self, request: httpx2.Request) -> httpx2.Request:
        """The request, to the address that was checked. The name stays in its Host header and in TLS."""
        url = request.url
        address = await resolve(url.host, url.port or _PORTS[url.scheme], private=self._private)
        return httpx2.Request(
            request.method,
            url.copy_with(host=address),
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": url.host},
        )


class _Bounded(httpx2.AsyncByteStream):
    """A body that must not be larger than allowed."""

    def __init__(self, inner: Any, most: int) -> None:
        self._inner = inner
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._inner:
                self._left -= len(chunk)
                if self._left < 0:
                    raise httpx2.StreamError("answered with more than is allowed")
                yield chunk
        except httpx2.TransportError as error:
            # The only kind that the session takes for the failure of one call.
            raise httpx2.StreamError(_reason(error)) from None

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._inner.aclose()


def _refusal(message: str) -> httpx2.Response:
    """What a server would say, if it could be asked."""
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": UNREACHABLE, "message": message}}
    return httpx2.Response(502, headers={"content-type": "application/json"}, content=json.dumps(error).encode())


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
