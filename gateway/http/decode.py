"""Requests into Structs. Unknown fields are ignored; what is wrong is named by its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from gateway.http.problems import Problem, invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")

# msgspec ends its messages with the place: "Expected `int`, got `str` - at `$.messages[0].content`".
_PLACE: Final = re.compile(r" - at `(?:key in )?\$?(?P<path>[^`]*)`\Z", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")
_MISSING: Final = re.compile(r"Object missing required field `([^`]+)`")


def body(raw: bytes, content_type: str, kind: type[T]) -> T:
    """The JSON body as this Struct, or 415 or 422."""
    media = content_type.partition(";")[0].strip().lower()
    if media and media != "application/json" and not media.endswith("+json"):
        raise Problem(415, {"detail": f"The body must be application/json, not {media[:100]}."})
    try:
        return msgspec.json.decode(raw or b"{}", type=kind)
    except msgspec.ValidationError as error:
        raise _wrong("body", error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise invalid(("body",), f"JSON decode error: {error}", "json_invalid") from None
    except RecursionError:
        raise invalid(("body",), "JSON decode error: nested too deeply", "json_invalid") from None


def query(raw: bytes, kind: type[T]) -> T:
    """The query string as this Struct, or 422."""
    given: dict[str, Any] = {}
    lists = _lists(kind)
    for key, value in parse_qsl(raw.decode("latin-1"), keep_blank_values=True):
        if key in lists:
            given.setdefault(key, []).append(value)
        else:
            given[key] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong("query", error) from None


def _wrong(where: str, error: msgspec.ValidationError) -> Problem:
    text = str(error)
    place = _PLACE.search(text)
    loc: list[str | int] = [where]
    if place is not None:
        text = text[: place.start()]
        loc += [name or (int(index) if index.isdigit() else index) for name, index in _STEP.findall(place["path"])]
    missing = _MISSING.match(text)
    if missing is not None:
        return invalid((*loc, missing[1]), "Field required", "missing")
    return invalid(loc, text)


_LISTS: dict[type, frozenset[str]] = {}


def _lists(kind: type) -> frozenset[str]:
    """The fields that may be given more than once."""
    found = _LISTS.get(kind)
    if found is None:
        fields: Mapping[str, Any] = {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
        found = _LISTS[kind] = frozenset(name for name, annotation in fields.items() if _is_list(annotation))
    return found


def _is_list(annotation: Any) -> bool:
    return get_origin(annotation) in (list, tuple) or any(_is_list(each) for each in get_args(annotation))
