"""The table of endpoints is data that a document can be made of."""

from typing import Any

import msgspec
import pytest

from gateway.endpoints import ENDPOINTS, LATER
from gateway.http.problems import Problem
from gateway.http.router import Router


def test_every_type_in_the_table_has_a_schema() -> None:
    kinds: list[Any] = [kind for each in ENDPOINTS for kind in (each.body, each.query, each.answer) if kind is not None]
    _, components = msgspec.json.schema_components(kinds)
    assert {"SendBody", "LettaResponse", "AssistantMessage"} <= components.keys()


def test_every_endpoint_is_described() -> None:
    assert all(each.summary and each.tag and each.path.startswith("/v1/") for each in ENDPOINTS)
    # A path with and without a trailing slash is the same one; the table has the shorter spelling.
    assert not any(each.path.endswith("/") for each in ENDPOINTS)


def test_the_same_method_of_a_path_is_refused_twice() -> None:
    with pytest.raises(ValueError, match="twice"):
        Router([*ENDPOINTS, ENDPOINTS[0]])


def test_a_segment_has_one_name() -> None:
    odd = msgspec.structs.replace(ENDPOINTS[0], path="/v1/runs/{other_id}")
    with pytest.raises(ValueError, match="run_id"):
        Router([*ENDPOINTS, odd])


def test_an_endpoint_goes_before_what_is_not_served() -> None:
    served = msgspec.structs.replace(ENDPOINTS[0], path="/v1/folders/count")
    router = Router([served], LATER)
    assert router.find("GET", "/v1/folders/count/")[0] is served
    with pytest.raises(Problem) as caught:
        router.find("GET", "/v1/folders")
    assert caught.value.status == 501
