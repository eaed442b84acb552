"""The OpenAPI document, made from the table of endpoints: what is served is what is described."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import UNSET, Struct, UnsetType

from common.ids import Prefix, pattern
from gateway import __version__
from gateway.http.router import IDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.http.endpoint import Endpoint

JSON = dict[str, Any]

_SCHEMAS: Final = "#/components/schemas/"
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_DEFAULT: Final = "default"
# Parts of a module's name that say nothing about the resource.
_PLAIN: Final = frozenset({"gateway", "endpoints", "inputs", "model"})
# Ids that the router leaves to the services.
_MORE_IDS: Final = {"run_id": Prefix.RUN, "message_id": Prefix.MESSAGE}

_ABOUT: Final = """Agents over HTTP and server-sent events as `letta-client` speaks, chat completions as `openai` does.

A path may end in a slash or not, and `/latest` is the same as `/v1`. Unknown fields of a body are ignored.
Event streams are bare `data:` frames, each one JSON object, and end with `[DONE]`."""


# OpenAPI 3.1 has no schema for the single events of a stream.
_EVENTS: Final = 'data: {"…": "…"}\n\ndata: [DONE]\n\n'


class FieldError(Struct, frozen=True):
    """A wrong argument."""

    field: str
    description: str


class PendingApproval(Struct, frozen=True):
    """An approval must be answered first."""

    code: str
    message: str
    pending_request_id: str


class Error(Struct, frozen=True):
    """A refusal or a failure, with what gRPC said of it."""

    detail: str | PendingApproval
    reason: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    fields: list[FieldError] | UnsetType = UNSET
    # Of a conversation that is busy, and of a run that failed.
    run_id: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    request_id: str | UnsetType = UNSET


class ModelFailure(Struct, frozen=True):
    """What a model's provider said."""

    type: str
    message: str
    detail: str


class RunFailure(Struct, frozen=True):
    """The model failed; the run has kept what was said to it."""

    error: ModelFailure
    run_id: str


class Invalid(Struct, frozen=True):
    """The request has not the right form; `detail` is a text that names the place."""

    trace_id: str
    detail: str
    examples: list[str] | UnsetType = UNSET


def document(endpoints: Sequence[Endpoint]) -> JSON:
    """OpenAPI 3.1."""
    kinds = _Kinds([Error, RunFailure, Invalid, *_kinds(endpoints)])
    paths: dict[str, JSON] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, kinds)
    tags = dict.fromkeys(endpoint.tag for endpoint in endpoints)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Bridle", "version": __version__, "description": _ABOUT},
        "tags": [{"name": tag} for tag in tags],
        # A server may also let everybody in.
        "security": [{"bearer": []}, {}],
        "paths": paths,
        "components": {
            "schemas": kinds.components,
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
    }


def _kinds(endpoints: Iterable[Endpoint]) -> list[Any]:
    return [kind for each in endpoints for kind in (each.body, each.answer, each.error) if kind is not None]


class _Kinds:
    """Schemas by type. Types of the same name get that of their resource before it."""

    def __init__(self, kinds: Sequence[Any]) -> None:
        found, components = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
        self.components = {_short(name): _renamed(schema) for name, schema in components.items()}
        self._found: dict[str, JSON] = dict(zip(map(repr, kinds), map(_renamed, found), strict=True))

    def __getitem__(self, kind: Any) -> JSON:
        return self._found[repr(kind)]


def _short(name: str) -> str:
    *module, own = name.split(".")
    return "".join(part.title() for part in module if part not in _PLAIN) + own


def _renamed(value: Any) -> Any:
    """The schema, with references by the short names."""
    if isinstance(value, dict):
        return {key: _renamed(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_renamed(each) for each in value]
    if isinstance(value, str) and value.startswith(_SCHEMAS):
        return _SCHEMAS + _short(value.removeprefix(_SCHEMAS))
    return value


def _operation(endpoint: Endpoint, kinds: _Kinds) -> JSON:
    operation: JSON = {
        "operationId": operation_id(endpoint),
        "summary": endpoint.summary,
        "description": endpoint.handler.__doc__ or "",
        "tags": [endpoint.tag],
        "parameters": [*map(_path_parameter, _PARAMETER.findall(endpoint.path)), *_query_parameters(endpoint.query)],
        "responses": _responses(endpoint, kinds),
    }
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": any(field.required for field in msgspec.structs.fields(endpoint.body)),
            "content": _json(kinds[endpoint.body]),
        }
    return operation


def operation_id(endpoint: Endpoint) -> str:
    """A name that no other endpoint has."""
    words = re.findall(r"\w+", endpoint.path.removeprefix("/v1").replace("-", "_"))
    return "_".join((endpoint.method.lower(), *words))


def _path_parameter(name: str) -> JSON:
    return {"name": name, "in": "path", "required": True, "schema": _path_schema(name)}


def _path_schema(name: str) -> JSON:
    if name == "conversation_id":
        conversation = {"type": "string", "pattern": f"^{pattern(Prefix.CONVERSATION)}$"}
        return {"anyOf": [conversation, {"const": _DEFAULT}]}
    prefix = IDS.get(name) or _MORE_IDS.get(name)
    if prefix is None:
        return {"type": "string", "minLength": 1}
    return {"type": "string", "pattern": f"^{pattern(prefix)}$"}


def _query_parameters(kind: type[Struct]) -> list[JSON]:
    schema = msgspec.json.schema(kind, ref_template=_SCHEMAS + "{name}")
    own = schema["$defs"][kind.__name__] if "$defs" in schema else schema
    return [
        {"name": name, "in": "query", "required": name in own["required"], "schema": _given(found)}
        for name, found in own["properties"].items()
    ]


def _given(schema: JSON) -> JSON:
    """In a query there is no null: what has no value is left out."""
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if len(kinds) != 1:
        return schema
    return kinds[0] if schema.get("default") is None else {**kinds[0], "default": schema["default"]}


def _responses(endpoint: Endpoint, kinds: _Kinds) -> JSON:
    content: JSON = {}
    if endpoint.answer is not None:
        content |= _json(kinds[endpoint.answer])
    if endpoint.streams:
        content["text/event-stream"] = {"example": _EVENTS}
    # Without a type of its own the answer says nothing: it is `null`, or an empty object.
    answer = {"description": "The answer.", "content": content or _json({"type": ["null", "object"]})}
    if endpoint.error is not None:
        return {"200": answer, "default": {"description": "An error.", "content": _json(kinds[endpoint.error])}}
    errors = {"anyOf": [kinds[Error], kinds[RunFailure]]}
    return {
        "200": answer,
        "422": {"description": "The request has not the right form.", "content": _json(kinds[Invalid])},
        "default": {"description": "An error.", "content": _json(errors)},
    }


def _json(schema: JSON) -> JSON:
    return {"application/json": {"schema": schema}}
