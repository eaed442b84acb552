"""The edge: sends a ready body through a vendor's SDK and reads the raw stream that comes back.

The SDKs know addresses, credentials, pools and proxies. They are not asked to look at bodies or to build objects from
chunks: that costs milliseconds for each call and 100 us for each token.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

import anthropic
import httpx2
import msgspec
import openai

from services.messages.model import Role
from services.models.api import Finish, Finished, ModelEvent, ModelRequest, Watch
from services.models.errors import ModelError, ModelErrorType
from services.models.failures import broken, complaint, quotable, refusal, timed_out
from services.models.sse import SseDecoder, SseError
from services.runs.model import Usage

# Only reaching the provider is limited here; how long it may take to answer is a matter of limits.py.
_TIMEOUT = httpx2.Timeout(None, connect=10.0)
_POOL = httpx2.Limits(max_connections=1000, max_keepalive_connections=100)

# A stream that was read to its end gives its connection back to the pool; this is how long its last bytes may take.
_DRAIN_SECONDS = 0.1
_SHOWN_BYTES = 300
_NONE: Mapping[str, str] = {}
_JSON = {"Content-Type": "application/json"}
# What a line of an event stream begins with.
_FIELDS = (b"data:", b"event:", b":", b"id:", b"retry:")


def http_client() -> httpx2.AsyncClient:
    """One pool of connections for all providers. Whoever makes it closes it."""
    return httpx2.AsyncClient(timeout=_TIMEOUT, limits=_POOL, follow_redirects=True)


class Endpoint(Protocol):
    """Where bodies are sent."""

    @property
    def secret(self) -> str:
        """What must not be repeated to anybody."""
        ...

    async def open(self, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        """Send it and return the answer once it begins well. Raises ModelError."""
        ...


class Reader(Protocol):
    """Understands one vendor's events, one turn long."""

    @property
    def done(self) -> bool:
        """Whether nothing that matters can follow."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the turn can end here."""
        ...

    @property
    def usage(self) -> Usage | None:
        """What the provider has told of the cost so far."""
        ...

    def read(self, data: bytes) -> Sequence[ModelEvent]:
        """What one event says."""
        ...

    def end(self) -> Sequence[ModelEvent]:
        """What is left to say when the stream has ended. Raises ModelError if that was too soon."""
        ...


class OpenAIEndpoint:
    """One path of an OpenAI client."""

    def __init__(self, client: openai.AsyncOpenAI, path: str) -> None:
        self._client = client
        self._path = path
        self.secret = client.api_key

    async def open(self, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        """Send it."""
        try:
            stream = await self._client.post(
                self._path,
                cast_to=object,
                content=body,
                options={"headers": {**_JSON, **headers}, "max_retries": 0, "timeout": _TIMEOUT},
                stream=True,
                stream_cls=openai.AsyncStream[Any],
            )
        except openai.APIStatusError as error:
            raise _refused(error.response) from None
        except openai.APITimeoutError as error:
            raise timed_out("The model provider could not be reached in time.", _reason(error)) from None
        except openai.APIConnectionError as error:
            raise broken("The model provider could not be reached.", _reason(error)) from None
        return stream.response


class AnthropicEndpoint:
    """One path of an Anthropic client."""

    def __init__(self, client: anthropic.AsyncAnthropic, path: str) -> None:
        self._client = client
        self._path = path
        self.secret = client.api_key or client.auth_token or ""

    async def open(self, body: bytes, headers: Mapping[str, str]) -> httpx2.Response:
        """Send it."""
        try:
            stream = await self._client.post(
                self._path,
                cast_to=object,
                content=body,
                options={"headers": {**_JSON, **headers}, "max_retries": 0, "timeout": _TIMEOUT},
                stream=True,
                stream_cls=anthropic.AsyncStream[Any],
            )
        except anthropic.APIStatusError as error:
            raise _refused(error.response) from None
        except anthropic.APITimeoutError as error:
            raise timed_out("The model provider could not be reached in time.", _reason(error)) from None
        except anthropic.APIConnectionError as error:
            raise broken("The model provider could not be reached.", _reason(error)) from None
        return stream.response


async def exchange(
    endpoint: Endpoint, body: bytes, reader: Reader, request: ModelRequest, headers: Mapping[str, str] = _NONE
) -> AsyncGenerator[ModelEvent, None]:
    """One call. However it ends, its connection is closed or back in the pool when this is."""
    response: httpx2.Response | None = None
    silent, refused, watch = True, False, request.watch
    if watch is not None:
        watch.sent(body, endpoint.secret)
    try:
        response = await endpoint.open(body, headers)
        # Closed by name, not by the garbage collector: what reads the connection must be gone before it is.
        async with aclosing(response.aiter_bytes()) as chunks:
            async with aclosing(_batches(chunks, reader, watch)) as batches:
                async for batch in batches:
                    for event in batch:
                        yield event
                        silent = False
            for event in _last(reader, request, silent=silent):
                yield event
            await _drain(chunks)
    except ModelError as error:
        refused = response is None
        if watch is not None and error.body:
            watch.received(error.body)
        error.detail = quotable(error.detail, endpoint.secret)
        raise
    finally:
        if watch is not None:
            watch.ended(reader.usage, refused=refused, whole=reader.complete)
        if response is not None:
            await response.aclose()


async def _batches(
    chunks: AsyncGenerator[bytes, None], reader: Reader, watch: Watch | None
) -> AsyncGenerator[list[ModelEvent], None]:
    """The events of each piece the network brings, as soon as it does."""
    decoder, first = SseDecoder(), b""
    try:
        async for chunk in chunks:
            first = first or chunk[:_SHOWN_BYTES]
            if watch is not None:
                watch.received(chunk)
            batch, failure = _read(decoder, reader, chunk)
            # What was said before it failed was said, wherever the network has cut.
            yield batch
            if failure is not None:
                raise failure
            if reader.done:
                return
    except httpx2.TimeoutException as error:
        raise timed_out("The connection to the model provider timed out.", _reason(error)) from None
    except httpx2.HTTPError as error:
        # A turn that was whole stays whole.
        if not reader.complete:
            raise broken("The connection to the model provider broke.", _reason(error)) from None
    if not reader.complete and not first.lstrip().startswith(_FIELDS):
        raise broken("The model provider did not answer with a stream.", first.decode(errors="replace"))


def _read(decoder: SseDecoder, reader: Reader, chunk: bytes) -> tuple[list[ModelEvent], ModelError | None]:
    batch: list[ModelEvent] = []
    try:
        for data in decoder.feed(chunk):
            batch += reader.read(data)
    except ModelError as error:
        return batch, error
    except (SseError, msgspec.MsgspecError, UnicodeError) as error:
        return batch, broken("The model provider sent what cannot be read.", str(error))
    return batch, None


def _last(reader: Reader, request: ModelRequest, *, silent: bool) -> Sequence[ModelEvent]:
    """The last events. Nothing at all is no answer, unless tools have said it all: some models end their turn so."""
    events = reader.end()
    after_tools = bool(request.messages) and request.messages[-1].role is Role.TOOL
    nothing = silent and len(events) == 1 and isinstance(events[0], Finished) and events[0].finish is Finish.STOP
    if nothing and not after_tools:
        raise ModelError(ModelErrorType.EMPTY_RESPONSE, "The model answered with nothing.", retryable=True)
    return events


async def _drain(chunks: AsyncGenerator[bytes, None]) -> None:
    with contextlib.suppress(httpx2.HTTPError, httpx2.StreamError, TimeoutError):
        async with asyncio.timeout(_DRAIN_SECONDS):
            async for _ in chunks:
                pass


def _refused(response: httpx2.Response) -> ModelError:
    error = refusal(complaint(response.content, response.status_code), response.headers)
    error.body = response.content
    return error


def _reason(error: BaseException) -> str:
    """What the network said. The SDKs wrap it in words of their own."""
    cause = error.__cause__ or error
    return f"{type(cause).__name__}: {cause}" if str(cause) else type(cause).__name__
