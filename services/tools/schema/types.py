"""Annotations as JSON schema."""

import ast
from typing import Any

from services.tools.schema.classes import Classes
from services.tools.schema.fields import DESCRIPTION, JSON_TYPES, Schema, enumeration, field_info, literal
from services.tools.schema.problem import problem
from services.tools.schema.scope import Scope

NULL: Schema = {"type": "null"}
_SIMPLE = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null", "NoneType": "null"}
_ARRAYS = frozenset({"list", "List", "Sequence", "MutableSequence", "Iterable", "Collection"})
_SETS = frozenset({"set", "Set", "frozenset", "FrozenSet", "AbstractSet", "MutableSet"})
_OBJECTS = frozenset({"dict", "Dict", "Mapping", "MutableMapping"})
_TUPLES = frozenset({"tuple", "Tuple"})
_ANYTHING = frozenset({"Any", "object"})
# Wrappers that say nothing about the value.
_TRANSPARENT = frozenset({"Required", "NotRequired", "ReadOnly", "Final"})
# A source can say much with few words: two models that use each other twice are four, then eight.
_MOST_NODES = 5_000


class Types:
    """Turns the annotations of one source into schemas."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self._classes = Classes(self)
        self._nodes = 0
        self._aliases: list[str] = []

    @property
    def definitions(self) -> dict[str, Schema]:
        """The models that contain themselves, which the schema refers to."""
        return self._classes.recursive

    def schema(self, node: ast.expr) -> Schema:
        """The schema of an annotation."""
        self._nodes += 1
        if self._nodes > _MOST_NODES:
            raise problem("describes arguments that are too large to be a schema", node)
        match node:
            case ast.Constant(value=None):
                return dict(NULL)
            case ast.Constant(value=str() as text):
                return self.schema(_forward(text, node))
            case ast.Name() | ast.Attribute():
                return self._named(node)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                return _any_of([self.schema(left), self.schema(right)])
            case ast.Subscript(value=value, slice=inside):
                arguments = inside.elts if isinstance(inside, ast.Tuple) else [inside]
                return self._generic(node, self.scope.last_name_of(value), arguments)
        raise _unknown(node)

    def _named(self, node: ast.Name | ast.Attribute) -> Schema:
        if isinstance(node, ast.Name):
            if node.id in self.scope.classes:
                return self._classes.schema(self.scope.classes[node.id])
            if node.id in self.scope.aliases:
                return self._alias(node)
        name = self.scope.last_name_of(node)
        if name in _SIMPLE:
            return {"type": _SIMPLE[name]}
        if name in _ARRAYS | _TUPLES:
            return {"type": "array", "items": {}}
        if name in _SETS:
            return {"type": "array", "items": {}, "uniqueItems": True}
        if name in _OBJECTS:
            return {"type": "object"}
        if name in _ANYTHING:
            return {}
        raise _unknown(node)

    def _alias(self, node: ast.Name) -> Schema:
        if node.id in self._aliases:
            raise problem(f"has a type '{node.id}' that is defined by itself", node)
        value = self.scope.aliases[node.id]
        self._aliases.append(node.id)
        try:
            if (
                isinstance(value, ast.Call)
                and self.scope.last_name_of(value.func) == "NewType"
                and len(value.args) == 2
            ):
                return self.schema(value.args[1])
            return self.schema(value)
        finally:
            self._aliases.pop()

    def _generic(self, node: ast.Subscript, name: str, arguments: list[ast.expr]) -> Schema:
        if name == "Optional":
            return _any_of([self.schema(arguments[0]), NULL])
        if name == "Union":
            return _any_of([self.schema(each) for each in arguments])
        if name == "Literal":
            return self._literal(arguments)
        if name == "Annotated":
            return {**self.schema(arguments[0]), **self._annotations(arguments[1:])}
        if name in _TRANSPARENT:
            return self.schema(arguments[0])
        return self._container(node, name, arguments)

    def _container(self, node: ast.Subscript, name: str, arguments: list[ast.expr]) -> Schema:
        if name in _ARRAYS:
            return {"type": "array", "items": self.schema(arguments[0])}
        if name in _SETS:
            return {"type": "array", "items": self.schema(arguments[0]), "uniqueItems": True}
        if name in _TUPLES:
            return self._tuple(arguments)
        if name in _OBJECTS and len(arguments) == 2:
            key = self.schema(arguments[0])
            if key.get("type", "string") != "string":
                raise problem("has a dict whose keys are not str, which JSON cannot carry", node)
            value = self.schema(arguments[1])
            return {"type": "object", **({"additionalProperties": value} if value else {})}
        raise _unknown(node)

    def _tuple(self, arguments: list[ast.expr]) -> Schema:
        if len(arguments) == 2 and isinstance(arguments[1], ast.Constant) and arguments[1].value is Ellipsis:
            return {"type": "array", "items": self.schema(arguments[0])}
        items = [self.schema(each) for each in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}

    def _literal(self, arguments: list[ast.expr]) -> Schema:
        return enumeration([self._value(each) for each in arguments])

    def _value(self, node: ast.expr) -> Any:
        """A value inside Literal: a constant, or a member of an enum of this source."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self.scope.classes:
            members = self._classes.members(self.scope.classes[node.value.id])
            if node.attr in members:
                return members[node.attr]
        found, value = literal(node)
        if not found or type(value) not in JSON_TYPES:
            raise problem("has a Literal of something that is not a text, a number, a bool or None", node)
        return value

    def default(self, node: ast.expr) -> tuple[bool, Any]:
        """What a default value is as JSON, if it can be read without running anything."""
        if isinstance(node, ast.Attribute):
            inner = node.value if node.attr == "value" and isinstance(node.value, ast.Attribute) else node
            if isinstance(inner.value, ast.Name) and inner.value.id in self.scope.classes:
                members = self._classes.members(self.scope.classes[inner.value.id])
                return inner.attr in members, members.get(inner.attr)
        return literal(node)

    def _annotations(self, extras: list[ast.expr]) -> Schema:
        told: Schema = {}
        for extra in extras:
            if isinstance(extra, ast.Constant) and isinstance(extra.value, str):
                told[DESCRIPTION] = extra.value
            elif isinstance(extra, ast.Call):
                told |= field_info(self.scope, extra).schema
        return told


def without_null(schema: Schema) -> tuple[Schema, bool]:
    """The schema without None, and whether it had it: a parameter that may be None may as well be left out."""
    choices = schema.get("anyOf")
    if choices is None or NULL not in choices:
        return schema, schema == NULL or None in schema.get("enum", ())
    rest = [each for each in choices if each != NULL]
    others = {key: value for key, value in schema.items() if key != "anyOf"}
    return ({**rest[0], **others} if len(rest) == 1 else {"anyOf": rest, **others}), True


def _any_of(schemas: list[Schema]) -> Schema:
    flat: list[Schema] = []
    for schema in schemas:
        for each in schema["anyOf"] if set(schema) == {"anyOf"} else [schema]:
            if each not in flat:
                flat.append(each)
    if {} in flat:
        return {}
    return flat[0] if len(flat) == 1 else {"anyOf": flat}


def _forward(text: str, at: ast.Constant) -> ast.expr:
    try:
        node = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise problem(f"has an annotation that is not a type: '{text[:80]}'", at) from None
    return ast.increment_lineno(node, at.lineno - 1)


def _unknown(node: ast.expr) -> Exception:
    shown = ast.unparse(node)[:80]
    return problem(
        f"has the type '{shown}', which is neither a type that JSON can carry nor a model, TypedDict, dataclass or "
        "enum that this source defines",
        node,
    )
