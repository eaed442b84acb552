"""Arguments that a model made up, against the schema it was shown and the function that is to take them."""

from collections.abc import Iterator
from typing import Any

from services.tools.schema.source import Function

Schema = dict[str, Any]

_MOST_NAMED = 5


class Misfit(Exception):
    """Told to the model, which may try again."""


def fit(arguments: dict[str, Any], schema: Schema, function: Function, nullable: frozenset[str]) -> dict[str, Any]:
    """The keyword arguments of the call, or Misfit with everything that is wrong with them."""
    parameters = {each.name: each for each in function.parameters if not each.injected}
    required = {each for each in schema.get("required", ()) if isinstance(each, str)}
    # Models say null for what they leave out.
    given = {
        name: value
        for name, value in arguments.items()
        if value is not None or name in nullable or name in required or name not in parameters
    }
    found = [f"'{name}' is not a parameter" for name in given if name not in parameters and not function.takes_anything]
    found += [
        f"'{name}' is missing"
        for name, each in parameters.items()
        if name not in given and name not in nullable and (name in required or not each.has_default)
    ]
    properties = schema.get("properties", {})
    for name, value in given.items():
        if name in properties and not (value is None and name in nullable):
            found += _problems(value, properties[name], f"'{name}'", schema.get("$defs", {}))
    if found:
        more = f"; and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
        raise Misfit(f"the arguments do not fit: {'; '.join(found[:_MOST_NAMED])}{more}")
    nothing = {each.name: None for each in function.parameters if each.injected and not each.has_default}
    left_out = {name: None for name, each in parameters.items() if name not in given and not each.has_default}
    return {**nothing, **left_out, **given}


def _problems(value: Any, schema: Any, at: str, definitions: dict[str, Schema], depth: int = 0) -> Iterator[str]:
    """What does not fit, as far as it can be said without running anybody's pattern."""
    if not isinstance(schema, dict) or depth > 64:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from _problems(value, definitions.get(reference.rpartition("/")[2]), at, definitions, depth + 1)
        return
    choices = schema.get("anyOf")
    if isinstance(choices, list):
        if all(any(_problems(value, each, at, definitions, depth + 1)) for each in choices):
            yield f"{at} fits none of its types"
        return
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    if kinds and not any(_is(value, kind) for kind in kinds):
        yield f"{at} must be {' or '.join(_NAMES.get(kind, kind) for kind in kinds)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} must be one of {', '.join(map(repr, schema['enum'][:20]))}"
    yield from _inside(value, schema, at, definitions, depth)


def _inside(value: Any, schema: Schema, at: str, definitions: dict[str, Schema], depth: int) -> Iterator[str]:
    if isinstance(value, list):
        items = schema.get("prefixItems") or [schema.get("items")] * len(value)
        for number, (each, inner) in enumerate(zip(value, items, strict=False)):
            yield from _problems(each, inner, f"{at}[{number}]", definitions, depth + 1)
    elif isinstance(value, dict):
        properties = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{at} lacks '{name}'"
        for name, each in value.items():
            inner = properties.get(name, schema.get("additionalProperties"))
            if inner is False:
                yield f"{at} must not have '{name}'"
            yield from _problems(each, inner, f"{at}.{name}", definitions, depth + 1)


_NAMES = {
    "string": "a text",
    "number": "a number",
    "integer": "a whole number",
    "boolean": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}
_CLASSES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
}


def _is(value: Any, kind: Any) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if kind == "integer":
        return not isinstance(value, bool) and (
            isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        )
    return not isinstance(value, bool) and isinstance(value, _CLASSES.get(kind, (object,)))
