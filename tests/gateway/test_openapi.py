"""The API document and its page: true, whole, and without anything from elsewhere."""

import re
from html.parser import HTMLParser
from typing import Any

import jsonschema_rs
import msgspec
import pytest
import schemathesis

from gateway import openapi, reference
from gateway.endpoints import ENDPOINTS, LATER
from tests.gateway.client import Gateway
from tests.gateway.conftest import MakeGateway

DOCUMENT = openapi.document(ENDPOINTS)
OPERATIONS = [
    (method, path, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own | {each for child in value.values() for each in references(child)}
    return {each for child in value for each in references(child)} if isinstance(value, list) else set()


def test_it_is_an_openapi_document() -> None:
    schemathesis.openapi.from_dict(DOCUMENT).validate()
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}), name


def test_what_it_names_is_in_it() -> None:
    known = {f"#/components/schemas/{name}" for name in DOCUMENT["components"]["schemas"]}
    assert references(DOCUMENT) <= known
    # Nothing is described that no endpoint uses.
    assert references(DOCUMENT) == known


def test_every_endpoint_is_in_it_and_what_is_not_served_is_not() -> None:
    described = {(method.upper(), path) for method, path, _ in OPERATIONS}
    assert described == {(endpoint.method, endpoint.path) for endpoint in ENDPOINTS}
    assert not {path for _, path in described} & set(LATER)
    assert len({operation["operationId"] for _, _, operation in OPERATIONS}) == len(ENDPOINTS)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=openapi.operation_id)
def test_an_endpoint_is_described_by_its_types(endpoint: Any) -> None:
    operation = DOCUMENT["paths"][endpoint.path][endpoint.method.lower()]
    given = {(each["in"], each["name"]) for each in operation["parameters"]}
    named = {("path", name) for name in re.findall(r"\{(\w+)\}", endpoint.path)}
    assert given == named | {("query", each.encode_name) for each in msgspec.structs.fields(endpoint.query)}
    assert ("requestBody" in operation) == (endpoint.body is not None)
    assert ("text/event-stream" in operation["responses"]["200"]["content"]) == endpoint.streams
    assert operation["summary"]
    assert operation["description"]


def test_ids_in_paths_have_their_form() -> None:
    (agent,) = DOCUMENT["paths"]["/v1/agents/{agent_id}/context"]["get"]["parameters"][:1]
    assert re.fullmatch(agent["schema"]["pattern"], "agent-123e4567-e89b-42d3-8456-426614174000")
    assert not re.fullmatch(agent["schema"]["pattern"], "agent-1")


class Page(HTMLParser):
    """What of a page must be right: every tag is closed, every link leads somewhere, nothing is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        found = dict(attrs)
        assert not found.keys() & {"src", "srcset", "onclick"}
        if "id" in found:
            self.ids.append(str(found["id"]))
        if "href" in found:
            self.links.append(str(found["href"]))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_loads_nothing() -> None:
    page = Page()
    page.feed(reference.page(DOCUMENT))
    page.close()
    assert page.open == []
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert len(set(page.ids)) == len(page.ids)
    assert {openapi.operation_id(endpoint) for endpoint in ENDPOINTS} < set(page.ids)
    assert set(page.links) <= {f"#{each}" for each in page.ids} | {"openapi.json"}


def test_text_in_the_page_is_text() -> None:
    odd = msgspec.structs.replace(ENDPOINTS[0], summary="<script>alert(1)</script> `a<b`")
    shown = reference.page(openapi.document([odd]))
    assert "<script>" not in shown
    assert "<code>a&lt;b</code>" in shown


async def test_both_are_served(gateway: Gateway) -> None:
    assert await gateway.get("/openapi.json") == msgspec.json.decode(msgspec.json.encode(DOCUMENT))
    answer = await gateway.http.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "/v1/chat/completions" in answer.text


async def test_a_process_without_the_gateway_serves_neither(make_gateway: MakeGateway) -> None:
    gateway = await make_gateway(settings={"BRIDLE_ROLES": "agents,messages,runs"})
    assert (await gateway.http.get("/openapi.json")).status_code == 404
    assert (await gateway.http.get("/docs")).status_code == 404
