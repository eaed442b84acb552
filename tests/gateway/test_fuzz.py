"""Requests made up from the API document, right ones and wrong ones: none makes a real server fail.

`make test` sends a few per endpoint, always the same ones. `make fuzz EXAMPLES=500` sends more, other ones each time
unless it is given the SEED that the last one printed.

501 is no failure: a process may lack a service, and says so. Everything else from 500 on is one, and so is an answer
that the document does not describe.
"""

import os
import re
from collections import Counter
from collections.abc import AsyncIterator
from functools import reduce
from operator import or_
from typing import Any

import httpx2
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy
from msgspec import Struct
from schemathesis import Case, GenerationMode

from gateway import openapi
from gateway.endpoints import ENDPOINTS
from gateway.http.endpoint import Endpoint
from tests.helpers.server import ServerProcess, running_server

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "0"))
SHORT = 6
SCHEMA = schemathesis.openapi.from_dict(openapi.document(ENDPOINTS))
NOT_SERVED = 501


class Target(Struct, frozen=True):
    """A server, and ids of what it has."""

    server: ServerProcess
    session: requests.Session
    ids: dict[str, str]
    # How many answers there were of each status.
    seen: Counter[int]

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://{self.server.http_address}"


@pytest.fixture(scope="module")
async def target() -> AsyncIterator[Target]:
    """A server with an agent that has said something."""
    async with running_server() as server:
        with requests.Session() as session:
            ids = await _populate(f"http://{server.http_address}")
            yield Target(server, session, ids, Counter())


async def _populate(url: str) -> dict[str, str]:
    async with httpx2.AsyncClient(base_url=url, timeout=30) as http:

        async def call(method: str, path: str, body: Any = None) -> Any:
            answer = await http.request(method, path, json=body)
            return answer.raise_for_status().json()

        agent = await call("POST", "/v1/agents", {"model": "demo/echo", "include_base_tools": False})
        said = {"messages": [{"role": "user", "content": "hi"}]}
        (message, *_) = (await call("POST", f"/v1/agents/{agent['id']}/messages", said))["messages"]
        conversation = await call("POST", f"/v1/conversations/?agent_id={agent['id']}", {})
        return {
            "agent_id": agent["id"],
            "conversation_id": conversation["id"],
            "message_id": message["id"],
            "run_id": message["run_id"],
            "step_id": message["step_id"],
        }


def cases(endpoint: Endpoint, ids: dict[str, str]) -> SearchStrategy[Case[Any]]:
    """Requests as the document allows and forbids them, about what there is and about what there is not."""
    operation = SCHEMA[endpoint.path][endpoint.method]
    known = {name: ids[name] for name in re.findall(r"\{(\w+)\}", endpoint.path) if name in ids}
    # What the other endpoints are asked about must stay.
    targets = [{}, known] if known and endpoint.method != "DELETE" else [{}]
    made = [operation.as_strategy(mode, path_parameters=each) for mode in GenerationMode for each in targets]
    return reduce(or_, made)


@pytest.mark.timeout(3600 if EXAMPLES else 60)
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=openapi.operation_id)
def test_no_request_makes_the_server_fail(endpoint: Endpoint, target: Target) -> None:
    @settings(
        max_examples=EXAMPLES or SHORT,
        derandomize=not EXAMPLES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink),
    )
    @given(case=cases(endpoint, target.ids))
    def check(case: Case[Any]) -> None:
        response = case.call(target.url, session=target.session, timeout=30)
        target.seen[response.status_code] += 1
        assert response.status_code < 500 or response.status_code == NOT_SERVED, (case.as_curl_command(), response.text)
        case.operation.validate_response(response)

    check()


def test_the_requests_were_of_all_kinds(target: Target) -> None:
    """After the others: many were served, and many were refused for what they were."""
    assert target.seen[200] > len(ENDPOINTS)
    assert {400, 404, 422} <= target.seen.keys()
