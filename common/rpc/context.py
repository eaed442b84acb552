"""Outermost interceptor: who is calling, under which request id, visible to all code below."""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import msgspec

from common import log
from common.ids import DEFAULT_ORGANIZATION, OrganizationId

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from common.rpc.adapter import Call, Responses, StreamNext, UnaryNext

REQUEST_ID_KEY: Final = "x-request-id"
ANONYMOUS: Final = "anonymous"

# A client's id goes into logs and back into headers: short, printable, no spaces.
_CLIENT_ID: Final = re.compile(r"[!-~]{1,128}")


class CallContext(msgspec.Struct, frozen=True):
    """What servicers and stores may know of the call they work for."""

    request_id: str
    method: str
    organization_id: OrganizationId = DEFAULT_ORGANIZATION
    principal: str = ANONYMOUS


_current: ContextVar[CallContext] = ContextVar("call_context")


def current_call() -> CallContext:
    """The call this task works for; LookupError outside of an RPC."""
    return _current.get()


def enter_call(context: CallContext) -> None:
    """Make this the current call. Never reset: each RPC has a task, and so a context, of its own."""
    _current.set(context)


class ContextInterceptor:
    """Takes the client's request id or makes one, and sends it back in the trailers."""

    def intercept_unary(self, call_next: UnaryNext, request: Any, call: Call) -> Awaitable[Any]:
        """Set up, then step aside."""
        _begin(call)
        return call_next(request, call)

    def intercept_stream(self, call_next: StreamNext, request: Any, call: Call) -> Awaitable[Responses]:
        """Set up, then step aside."""
        _begin(call)
        return call_next(request, call)


def _begin(call: Call) -> None:
    given = call.metadata.get(REQUEST_ID_KEY)
    usable = isinstance(given, str) and _CLIENT_ID.fullmatch(given)
    call.request_id = str(given) if usable else str(uuid.uuid4())
    enter_call(CallContext(call.request_id, call.method))
    log.bind(request_id=call.request_id)
    call.context.set_trailing_metadata(((REQUEST_ID_KEY, call.request_id),))
