"""Innermost interceptor: asks an authenticator who is calling and puts the answer into the context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from common.ids import DEFAULT_ORGANIZATION, OrganizationId
from common.rpc.context import ANONYMOUS, CallContext, enter_call
from common.rpc.methods import is_infrastructure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from common.rpc.adapter import Call, Responses, StreamNext, UnaryNext


class Identity(msgspec.Struct, frozen=True):
    """Who a credential belongs to."""

    organization_id: OrganizationId
    principal: str


class Authenticator(Protocol):
    """Turns a call's metadata into an identity, or raises Unauthenticated or PermissionDenied."""

    async def authenticate(self, method: str, metadata: Mapping[str, str | bytes]) -> Identity:
        """The identity of the caller."""
        ...


class Anonymous:
    """Lets everybody in as the default organization; for a server on loopback."""

    async def authenticate(self, method: str, metadata: Mapping[str, str | bytes]) -> Identity:
        """The same identity for every call."""
        return Identity(DEFAULT_ORGANIZATION, ANONYMOUS)


class AuthInterceptor:
    """Every call but health and reflection is authenticated."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def intercept_unary(self, call_next: UnaryNext, request: Any, call: Call) -> Any:
        """Authenticate, then go on."""
        await self._identify(call)
        return await call_next(request, call)

    async def intercept_stream(self, call_next: StreamNext, request: Any, call: Call) -> Responses:
        """Authenticate, then go on."""
        await self._identify(call)
        return await call_next(request, call)

    async def _identify(self, call: Call) -> None:
        if is_infrastructure(call.method):
            return
        identity = await self._authenticator.authenticate(call.method, call.metadata)
        enter_call(CallContext(call.request_id, call.method, identity.organization_id, identity.principal))
