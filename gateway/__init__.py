"""The HTTP gateway: the REST and SSE contract of `letta-client` over gRPC. Stateless; imports only `common`.

How to add an endpoint:

1. Write the Structs of its query, body and answer and an `async def` handler in `gateway/endpoints/<resource>.py`.
   The handler is given an `Exchange`: `exchange.path["agent_id"]`, `exchange.query`, `exchange.body`. It calls a
   service with `await exchange.caller(exchange.backend.agents.GetAgent, request)` and returns a value that is sent as
   JSON, a `Reply` (another status or type) or an `EventStream`.
2. Add an `Endpoint(method=…, path=…, summary=…, tag=…, handler=…, body=…, query=…, answer=…)` to the `ENDPOINTS` of
   that module, and a new module's `ENDPOINTS` to the table in `gateway/endpoints/__init__.py`. Trailing slashes and
   `/latest` need nothing. Take a path that is now served out of `gateway/endpoints/later.py`.
3. Raise nothing for what gRPC refuses: `gateway/errors.py` turns its status into the wire's answer. For rules of the
   wire itself raise `problems.invalid(("body", "field"), "…")` (422), `bad_request`, `not_found` or `conflict`.

Bodies and queries are decoded by msgspec: unknown fields are ignored, a wrong one is named in a 422, limits are
`Annotated[int, Meta(ge=1, le=1000)]`. Path parameters named in `gateway/http/router.py` are checked to be ids.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("bridle")
except PackageNotFoundError:  # run from a folder that was never installed
    __version__ = "0"
