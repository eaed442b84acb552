"""A schema that the caller wrote: whether it can be the schema of a tool's arguments."""

from collections.abc import Iterator
from typing import Any

_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_ONE = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS = ("properties", "patternProperties", "$defs", "definitions")
_DEEPEST = 64


def problems(schema: dict[str, Any]) -> Iterator[str]:
    """What is wrong with a schema of arguments; each completes the sentence that the field's name begins."""
    if schema.get("type", "object") != "object":
        yield "must be the schema of an object: its type must be 'object'"
    yield from _schema(schema, "", 0)


def completed(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with what providers insist on."""
    return {"type": "object", "properties": {}, "required": [], **schema}


def _schema(schema: Any, at: str, depth: int) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"must have a schema at '{at}'"
    elif depth > _DEEPEST:
        yield f"must not be nested more than {_DEEPEST} levels deep"
    else:
        yield from _keywords(schema, at)
        for where, inner in _inside(schema, at):
            yield from _schema(inner, where, depth + 1)


def _keywords(schema: dict[str, Any], at: str) -> Iterator[str]:
    kinds = schema.get("type", [])
    if not _texts([kinds] if isinstance(kinds, str) else kinds) or not _TYPES.issuperset(
        [kinds] if isinstance(kinds, str) else kinds
    ):
        yield f"must have JSON types at '{_join(at, 'type')}'"
    if not _texts(schema.get("required", [])):
        yield f"must have a list of names at '{_join(at, 'required')}'"
    if "enum" in schema and not (isinstance(schema["enum"], list) and schema["enum"]):
        yield f"must have a list of values at '{_join(at, 'enum')}'"
    for key in ("description", "title", "$ref", "pattern", "format"):
        if not isinstance(schema.get(key, ""), str):
            yield f"must have a text at '{_join(at, key)}'"
    for key in _LISTS:
        if key in schema and not (isinstance(schema[key], list) and schema[key]):
            yield f"must have a list of schemas at '{_join(at, key)}'"
    for key in _MAPS:
        if not isinstance(schema.get(key, {}), dict):
            yield f"must have an object of schemas at '{_join(at, key)}'"


def _inside(schema: dict[str, Any], at: str) -> Iterator[tuple[str, Any]]:
    for key in _ONE:
        if key in schema:
            # Before draft 2020-12 the items of a tuple were a list here.
            many = schema[key] if key == "items" and isinstance(schema[key], list) else [schema[key]]
            yield from ((_join(at, key), each) for each in many)
    for key in _LISTS:
        if isinstance(schema.get(key), list):
            yield from ((_join(at, key), each) for each in schema[key])
    for key in _MAPS:
        if isinstance(schema.get(key), dict):
            yield from ((_join(at, f"{key}.{name}"), each) for name, each in schema[key].items())


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _join(at: str, key: str) -> str:
    return f"{at}.{key}" if at else key
