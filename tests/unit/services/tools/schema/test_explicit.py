"""Schemas that callers write."""

from typing import Any

import pytest

from services.tools.schema.explicit import completed, problems

NESTED: dict[str, Any] = {}
for _ in range(70):
    NESTED = {"items": NESTED}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": True}, "required": ["a"]},
        {"properties": {"a": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/N"}]}}, "$defs": {"N": {"enum": [1]}}},
        {"properties": {"a": {"type": "array", "items": [{"type": "string"}]}}, "additionalProperties": False},
    ],
)
def test_schemas_of_arguments(schema: dict[str, Any]) -> None:
    assert list(problems(schema)) == []


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string"}, "must be the schema of an object"),
        ({"type": "objekt"}, "must have JSON types at 'type'"),
        ({"properties": []}, "must have an object of schemas at 'properties'"),
        ({"properties": {"a": 1}}, "must have a schema at 'properties.a'"),
        ({"properties": {"a": {"type": "text"}}}, "must have JSON types at 'properties.a.type'"),
        ({"properties": {"a": {"type": 1}}}, "must have JSON types at 'properties.a.type'"),
        ({"required": "a"}, "must have a list of names at 'required'"),
        ({"required": [1]}, "must have a list of names at 'required'"),
        ({"properties": {"a": {"enum": []}}}, "must have a list of values at 'properties.a.enum'"),
        ({"properties": {"a": {"anyOf": {}}}}, "must have a list of schemas at 'properties.a.anyOf'"),
        ({"properties": {"a": {"items": 3}}}, "must have a schema at 'properties.a.items'"),
        ({"properties": {"a": {"description": 3}}}, "must have a text at 'properties.a.description'"),
        ({"properties": {"a": NESTED}}, "must not be nested more than 64 levels deep"),
    ],
)
def test_what_is_no_schema(schema: dict[str, Any], told: str) -> None:
    assert any(each.startswith(told) for each in problems(schema)), list(problems(schema))


def test_what_providers_insist_on_is_added() -> None:
    assert completed({"properties": {"a": {}}}) == {"type": "object", "properties": {"a": {}}, "required": []}
