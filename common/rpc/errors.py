"""The only place where an exception becomes a status; a client never hangs and never sees a cause."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
import grpc.aio

from common.errors import BridleError, Internal, InternalCancelled, NotImplementedYet
from common.rpc.context import REQUEST_ID_KEY
from common.rpc.status import to_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from common.rpc.adapter import Call, Responses, StreamNext, UnaryNext

    Translate = Callable[[Exception], BridleError | None]

_log = logging.getLogger(__name__)


class ErrorInterceptor:
    """Aborts the RPC with google.rpc.Status. `translate` knows the errors of the database driver."""

    def __init__(self, translate: Translate) -> None:
        self._translate = translate

    async def intercept_unary(self, call_next: UnaryNext, request: Any, call: Call) -> Any:
        """Translate what the call raises."""
        try:
            return await call_next(request, call)
        except (Exception, asyncio.CancelledError) as error:
            await self._abort(error, call)

    async def intercept_stream(self, call_next: StreamNext, request: Any, call: Call) -> Responses:
        """Translate what opening the stream raises, and what it raises later."""
        try:
            responses = await call_next(request, call)
        except (Exception, asyncio.CancelledError) as error:
            await self._abort(error, call)
        return self._guarded(responses, call)

    async def _guarded(self, responses: Responses, call: Call) -> Responses:
        try:
            async with aclosing(responses):
                async for response in responses:
                    yield response
        except (Exception, asyncio.CancelledError) as error:
            await self._abort(error, call)

    async def _abort(self, error: BaseException, call: Call) -> NoReturn:
        if isinstance(error, grpc.aio.AbortError):
            raise error
        if isinstance(error, asyncio.CancelledError):
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                # The client hung up. Swallowing this would leak native memory in grpc.
                raise error
        status = to_status(self._domain_error(error, call))
        trailers = (*status.trailing_metadata, (REQUEST_ID_KEY, call.request_id))
        await call.context.abort(status.code, status.details, trailers)

    def _domain_error(self, error: BaseException, call: Call) -> BridleError:
        if isinstance(error, BridleError):
            return error
        if isinstance(error, asyncio.CancelledError):
            # Not the client: something this handler waited for was cancelled. Left alone, grpc would
            # send no status at all and the client would wait for ever.
            _log.warning("work of %s was cancelled inside the server", call.method, exc_info=error)
            return InternalCancelled()
        if _is_generated_stub(error, call):
            return NotImplementedYet(call.method)
        translated = self._translate(error) if isinstance(error, Exception) else None
        if translated is not None:
            _log.warning("%s failed in the store", call.method, exc_info=error)
            return translated
        _log.error("%s failed", call.method, exc_info=error)
        return Internal(call.request_id)


def _is_generated_stub(error: BaseException, call: Call) -> bool:
    """A method the servicer did not override: generated code sets the code, then raises."""
    unimplemented = call.context.code() is grpc.StatusCode.UNIMPLEMENTED
    return isinstance(error, NotImplementedError) and unimplemented
