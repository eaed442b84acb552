"""What `Field(...)`, `field(...)` and defaults say of one value."""

import ast
from typing import Any

import msgspec
from msgspec import Struct

from services.tools.schema.scope import Scope

Schema = dict[str, Any]

DESCRIPTION = "description"
JSON_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}
_INFORMING = frozenset({"Field", "field", "Query", "Body", "Doc", "Meta"})
_CONSTRAINTS = {
    "description": DESCRIPTION,
    "documentation": DESCRIPTION,
    "title": "title",
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "regex": "pattern",
}


class FieldInfo(Struct, frozen=True):
    """What is known of a field besides its type."""

    schema: dict[str, Any] = {}
    has_default: bool = False
    default: ast.expr | None = None


def enumeration(values: list[Any]) -> Schema:
    """The schema of one of these values."""
    kinds = list(dict.fromkeys(JSON_TYPES[type(value)] for value in values))
    return {"type": kinds[0] if len(kinds) == 1 else kinds, "enum": values}


def literal(node: ast.expr) -> tuple[bool, Any]:
    """The value that a literal stands for, if it is one and JSON has it."""
    try:
        value = ast.literal_eval(node)
        return _is_json(value), msgspec.json.decode(msgspec.json.encode(value))
    except (ValueError, TypeError, OverflowError, SyntaxError, RecursionError, MemoryError):
        return False, None


def _is_json(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(each) for key, each in value.items())
    return type(value) in JSON_TYPES


def field_info(scope: Scope, call: ast.Call) -> FieldInfo:
    """What a call like `Field(3, description="...")` says; any other call says nothing."""
    name = scope.last_name_of(call.func)
    if name not in _INFORMING:
        return FieldInfo()
    schema: dict[str, Any] = {}
    default = None if name == "Doc" or not call.args else call.args[0]
    has_default = default is not None and not _is_ellipsis(default)
    if name == "Doc" and call.args:
        _add(schema, DESCRIPTION, call.args[0])
    for keyword in call.keywords:
        if keyword.arg in _CONSTRAINTS:
            _add(schema, _CONSTRAINTS[keyword.arg], keyword.value)
        elif keyword.arg == "default":
            default, has_default = keyword.value, not _is_ellipsis(keyword.value)
        elif keyword.arg == "default_factory":
            default, has_default = None, True
    return FieldInfo(schema, has_default, default if has_default else None)


def _add(schema: dict[str, Any], key: str, node: ast.expr) -> None:
    found, value = literal(node)
    wanted = (str,) if key in (DESCRIPTION, "title", "pattern") else (int, float)
    if found and isinstance(value, wanted):
        schema[key] = value


def _is_ellipsis(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is Ellipsis
