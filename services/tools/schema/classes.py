"""Classes of a source as JSON schema: enums, and what has typed fields (models, dataclasses, TypedDicts)."""

import ast
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from services.tools.schema import docstring
from services.tools.schema.fields import DESCRIPTION, FieldInfo, Schema, enumeration, field_info, literal
from services.tools.schema.problem import problem

if TYPE_CHECKING:
    from services.tools.schema.types import Types

_ENUMS = frozenset({"Enum", "StrEnum", "IntEnum", "Flag", "IntFlag", "ReprEnum"})
_MODELS = frozenset({"BaseModel", "SQLModel", "TypedDict", "NamedTuple", "Struct"})
_DECORATORS = frozenset({"dataclass", "define", "frozen", "mutable", "attrs"})


class _Field(Struct, frozen=True):
    schema: dict[str, Any]
    required: bool


class Classes:
    """Turns the classes of one source into schemas."""

    def __init__(self, types: "Types") -> None:
        self._types = types
        self._scope = types.scope
        self._open: list[str] = []
        self.recursive: dict[str, Schema] = {}

    def schema(self, definition: ast.ClassDef) -> Schema:
        """The schema of a class's values."""
        name = definition.name
        if name in self._open:
            self.recursive.setdefault(name, {})
        if name in self.recursive:
            return {"$ref": f"#/$defs/{name}"}
        self._open.append(name)
        try:
            schema = self._schema(definition)
        finally:
            self._open.pop()
        if name not in self.recursive:
            return schema
        self.recursive[name] = schema
        return {"$ref": f"#/$defs/{name}"}

    def members(self, definition: ast.ClassDef) -> dict[str, Any]:
        """The members of an enum by name, with their values; of another class, none."""
        if not self._derives(definition, _ENUMS):
            return {}
        found: dict[str, Any] = {}
        for statement in definition.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                name = statement.targets[0].id
                if not name.startswith("_"):
                    found[name] = self._member(definition, name, statement.value, len(found))
        return found

    def _member(self, definition: ast.ClassDef, name: str, value: ast.expr, number: int) -> Any:
        if isinstance(value, ast.Call) and self._scope.last_name_of(value.func) == "auto":
            return name.lower() if self._derives(definition, {"StrEnum"}) else number + 1
        # A tuple is a member with more than a value; JSON carries none of it.
        known, plain = literal(value)
        if not known or not isinstance(plain, str | int | float):
            raise problem(f"has the enum '{definition.name}' with a member that is not a text or a number", value)
        return plain

    def _schema(self, definition: ast.ClassDef) -> Schema:
        described = ast.get_docstring(definition, clean=False)
        told = {DESCRIPTION: docstring.parse(described).description} if described else {}
        if self._derives(definition, _ENUMS):
            values = list(self.members(definition).values())
            if not values:
                raise problem(f"has the enum '{definition.name}' without members", definition)
            return {**enumeration(values), **told}
        if not self._is_model(definition):
            raise problem(
                f"has a parameter of the class '{definition.name}', which is neither a model, a TypedDict, a dataclass "
                "nor an enum",
                definition,
            )
        fields = self._fields(definition)
        return {
            "type": "object",
            "properties": {name: field.schema for name, field in fields.items()},
            "required": [name for name, field in fields.items() if field.required],
            **told,
        }

    def _fields(self, definition: ast.ClassDef) -> dict[str, _Field]:
        """Those of the bases first; a field that is declared again is the later one."""
        found: dict[str, _Field] = {}
        for base in definition.bases:
            if isinstance(base, ast.Name) and base.id in self._scope.classes and base.id != definition.name:
                found |= self._fields(self._scope.classes[base.id])
        told = docstring.parse(ast.get_docstring(definition, clean=False) or "").parameters
        total = not any(
            keyword.arg == "total" and isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            for keyword in definition.keywords
        )
        for statement in definition.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                name, wrapper = statement.target.id, self._wrapper(statement.annotation)
                if not name.startswith("_") and wrapper != "ClassVar" and name != "model_config":
                    found[name] = self._field(
                        statement, wrapper == "Required" or (total and wrapper != "NotRequired"), told.get(name, "")
                    )
        return found

    def _field(self, statement: ast.AnnAssign, required: bool, told: str) -> _Field:
        schema = {**self._types.schema(statement.annotation)}
        info = self._info(statement.value)
        schema |= info.schema
        if told:
            schema.setdefault(DESCRIPTION, told)
        if info.default is not None:
            known, value = self._types.default(info.default)
            if known and value is not None:
                schema["default"] = value
        return _Field(schema, required and not info.has_default)

    def _info(self, value: ast.expr | None) -> FieldInfo:
        if value is None:
            return FieldInfo()
        if isinstance(value, ast.Call):
            info = field_info(self._scope, value)
            known = info != FieldInfo() or self._scope.last_name_of(value.func) in ("Field", "field")
            return info if known else FieldInfo(has_default=True)
        return FieldInfo(has_default=True, default=value)

    def _wrapper(self, annotation: ast.expr) -> str:
        node = annotation.value if isinstance(annotation, ast.Subscript) else annotation
        return self._scope.last_name_of(node)

    def _is_model(self, definition: ast.ClassDef) -> bool:
        decorators = (each.func if isinstance(each, ast.Call) else each for each in definition.decorator_list)
        if any(self._scope.last_name_of(each) in _DECORATORS for each in decorators):
            return True
        bases = (self._scope.classes.get(base.id) for base in definition.bases if isinstance(base, ast.Name))
        return self._derives(definition, _MODELS) or any(self._is_model(base) for base in bases if base is not None)

    def _derives(self, definition: ast.ClassDef, wanted: frozenset[str] | set[str], depth: int = 0) -> bool:
        for base in definition.bases:
            local = self._scope.classes.get(base.id) if isinstance(base, ast.Name) else None
            if local is None and self._scope.last_name_of(base) in wanted:
                return True
            if local is not None and depth < 20 and self._derives(local, wanted, depth + 1):
                return True
        return False
