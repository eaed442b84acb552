"""Who is asking: what a request's headers say, as gRPC metadata. Whether it is true is for the services to judge."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from common.rpc.context import REQUEST_ID_KEY
from gateway.errors import UNAUTHORIZED
from gateway.http.problems import Problem, bad_request

if TYPE_CHECKING:
    from collections.abc import Mapping

_USER_ID: Final = re.compile(r"user-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PRINTABLE: Final = re.compile(r"[ -~]*")
_BARE: Final = "password "


def metadata(headers: Mapping[str, str], request_id: str) -> tuple[tuple[str, str], ...]:
    """The Bearer token (or the older `X-BARE-PASSWORD: password …`) and the request id."""
    user = headers.get("user_id")
    if user is not None and not _USER_ID.fullmatch(user):
        raise bad_request("The header user_id must look like 'user-<uuid4>'.")
    credential = headers.get("authorization", "")
    bare = headers.get("x-bare-password", "")
    if not credential and bare:
        credential = f"Bearer {bare.removeprefix(_BARE)}"
    if not _PRINTABLE.fullmatch(credential):
        # gRPC could not carry it, so that it cannot be anybody's.
        raise Problem(401, {"detail": UNAUTHORIZED})
    pair = (REQUEST_ID_KEY, request_id)
    return (pair, ("authorization", credential)) if credential else (pair,)
