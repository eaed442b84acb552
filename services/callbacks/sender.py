"""One attempt: looks the address up, connects to what was found and to nothing else, and says what came of it."""

import asyncio
from collections.abc import Mapping

import httpx2

from common.net import ForbiddenAddress, check_url, resolve
from services.callbacks.model import Answer

_SECONDS = 10.0
_SHOWN = 200


class Sender:
    """Sends callbacks. Follows no redirect: it could lead where the first address may not."""

    def __init__(self, http: httpx2.AsyncClient, *, private: bool) -> None:
        self._http = http
        self._private = private

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """What the receiver answered, or why there is no answer."""
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._post(url, body, headers)
        except TimeoutError:
            return Answer(error=f"no answer within {_SECONDS:.0f} seconds")
        except ForbiddenAddress as error:
            return Answer(error=str(error))
        except httpx2.HTTPError as error:
            return Answer(error=f"{type(error).__name__}: {error}"[:_SHOWN])

    async def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        parts = check_url(url, private=self._private)
        host, tls = parts.hostname or "", parts.scheme == "https"
        address = await resolve(host, parts.port or (443 if tls else 80), private=self._private)
        request = self._http.build_request(
            "POST",
            httpx2.URL(url).copy_with(host=address),
            content=body,
            headers={"host": parts.netloc, "content-type": "application/json", "user-agent": "bridle", **headers},
            # The certificate must be that of the name, although the connection is made to the number.
            extensions={"sni_hostname": host} if tls else {},
        )
        response = await self._http.send(request, stream=True, follow_redirects=False)
        # What it says is of no interest, and may be endless.
        await response.aclose()
        return Answer(status=response.status_code)
