"""Between JSON and the types that a function declares. Runs behind the walls, with the standard library only."""

import dataclasses
import datetime
import decimal
import enum
import inspect
import pathlib
import sys
import types
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any

_AS_TEXT = (uuid.UUID, decimal.Decimal, pathlib.PurePath)
_AS_ISO = (datetime.datetime, datetime.date, datetime.time)
_BASIC = (str, bool, int, float, type(None))


def typed(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments as the function declares them: enums, models and dataclasses are made of what JSON has instead."""
    function = inspect.unwrap(function)
    declared, names = getattr(function, "__annotations__", {}), getattr(function, "__globals__", {})
    return {
        name: _made(value, _hint(declared[name], names)) if name in declared else value
        for name, value in arguments.items()
    }


def plain(value: Any) -> Any:
    """What JSON has instead of a value, for `json.dumps(default=...)`; a TypeError if it has nothing."""
    if callable(getattr(type(value), "model_dump", None)):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, set | frozenset):
        return list(value)
    if isinstance(value, _AS_ISO):
        return value.isoformat()
    if isinstance(value, _AS_TEXT):
        return str(value)
    raise TypeError(f"an object of type {type(value).__name__} is not JSON")


def _hint(annotation: Any, names: dict[str, Any]) -> Any:
    """An annotation with its forward references resolved. One that cannot be read says nothing."""
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        return typing.get_type_hints(holder, names, include_extras=True)["it"]
    except Exception:  # whatever is raised: reading an annotation runs code of the tool
        return Any


def _made(value: Any, hint: Any) -> Any:
    while hasattr(hint, "__supertype__"):
        hint = hint.__supertype__
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _made(value, inside[0])
    if origin in (typing.Union, types.UnionType):
        return next((_made(value, each) for each in inside if _suits(value, each)), value)
    if origin is typing.Literal:
        return next((each for each in inside if isinstance(each, enum.Enum) and each.value == value), value)
    if isinstance(value, list):
        return _made_of_list(value, hint, origin, inside)
    if isinstance(value, dict):
        return _made_of_object(value, hint, inside)
    return _made_of_scalar(value, hint)


def _made_of_scalar(value: Any, hint: Any) -> Any:
    if not isinstance(hint, type):
        return value
    if issubclass(hint, enum.Enum) and not isinstance(value, hint):
        return hint(value)
    if hint is float and type(value) is int:
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _made_of_list(value: list[Any], hint: Any, origin: Any, inside: tuple[Any, ...]) -> Any:
    kind = origin or hint
    if not isinstance(kind, type):
        return value
    if issubclass(kind, tuple):
        if len(inside) == 2 and inside[1] is Ellipsis:
            return tuple(_made(each, inside[0]) for each in value)
        return (
            tuple(_made(each, wanted) for each, wanted in zip(value, inside, strict=True)) if inside else tuple(value)
        )
    made = [_made(each, inside[0]) for each in value] if inside else value
    for wanted in (frozenset, set):
        if issubclass(kind, wanted):
            return wanted(made)
    return made


def _made_of_object(value: dict[str, Any], hint: Any, inside: tuple[Any, ...]) -> Any:
    if len(inside) == 2:
        return {_made(key, inside[0]): _made(each, inside[1]) for key, each in value.items()}
    if not isinstance(hint, type):
        return value
    if callable(getattr(hint, "model_validate", None)):
        return hint.model_validate(value)  # type: ignore[attr-defined]  # as pydantic has it
    if not _has_fields(hint):
        return value
    names = vars(sys.modules.get(hint.__module__, types))
    declared = {name: each for base in reversed(hint.__mro__) for name, each in inspect.get_annotations(base).items()}
    made = {
        name: _made(each, _hint(declared[name], names)) if name in declared else each for name, each in value.items()
    }
    return made if typing.is_typeddict(hint) else hint(**made)


def _has_fields(hint: type) -> bool:
    return (
        dataclasses.is_dataclass(hint)
        or typing.is_typeddict(hint)
        or (issubclass(hint, tuple) and hasattr(hint, "_fields"))
    )


def _suits(value: Any, hint: Any) -> bool:
    """Whether a choice of a union is the one that the value was meant for."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _suits(value, typing.get_args(hint)[0])
    if hint is Any:
        return True
    kind = origin or hint
    if not isinstance(kind, type):
        return True
    if issubclass(kind, enum.Enum):
        return any(member.value == value for member in kind)
    if kind in _BASIC:
        return type(value) is kind or (kind is float and type(value) is int)
    if isinstance(value, list):
        return issubclass(kind, list | tuple | set | frozenset) and not hasattr(kind, "_fields")
    return isinstance(value, dict)
