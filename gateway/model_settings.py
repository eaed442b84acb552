"""How a model is called: the wire's `model_settings` and ours. What else a provider's settings have is ignored."""

from __future__ import annotations

from typing import Any, Final, Literal

from msgspec import Struct

from common.pb.bridle.v1 import model_pb2
from gateway.messages.inputs import fill
from gateway.structs import Int32, plain

_EFFORT: Final = "REASONING_EFFORT_"


class ReasoningIn(Struct, frozen=True):
    """How much to reason."""

    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class ThinkingIn(Struct, frozen=True):
    """The same, as a budget."""

    type: Literal["enabled", "disabled"] | None = None
    budget_tokens: Int32 | None = None


class SettingsIn(Struct, frozen=True, kw_only=True):
    """The settings of any provider."""

    provider_type: str | None = None
    temperature: float | None = None
    max_output_tokens: Int32 | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningIn | None = None
    thinking: ThinkingIn | None = None
    response_format: dict[str, Any] | None = None


class SettingsOut(Struct, frozen=True, kw_only=True):
    """What is set."""

    provider_type: str
    temperature: float | None
    max_output_tokens: int | None
    parallel_tool_calls: bool | None
    reasoning: dict[str, str] | None
    thinking: dict[str, Any] | None
    response_format: dict[str, Any] | None


def to_pb(given: SettingsIn) -> model_pb2.ModelSettings:
    """Ours."""
    settings = model_pb2.ModelSettings()
    for name in ("temperature", "max_output_tokens", "parallel_tool_calls"):
        value = getattr(given, name)
        if value is not None:
            setattr(settings, name, value)
    wanted = given.reasoning.reasoning_effort if given.reasoning else None
    if wanted is not None:
        settings.reasoning_effort = effort(wanted)
    if given.thinking is not None and given.thinking.type != "disabled" and given.thinking.budget_tokens is not None:
        settings.max_reasoning_tokens = given.thinking.budget_tokens
    schema = schema_of(given.response_format)
    if schema:
        fill(settings.response_schema, schema, ("body", "model_settings", "response_format"))
    return settings


def effort(word: str) -> model_pb2.ModelSettings.ReasoningEffort.ValueType:
    """How much to reason, by its name. Nothing above high is known here."""
    known = "high" if word == "xhigh" else word
    return model_pb2.ModelSettings.ReasoningEffort.Value(_EFFORT + known.upper())


def schema_of(response_format: dict[str, Any] | None) -> dict[str, Any] | None:
    """The JSON schema in a `response_format`, if there is one."""
    if not response_format or response_format.get("type") != "json_schema":
        return None
    wrapped = response_format.get("json_schema")
    schema = wrapped.get("schema", wrapped) if isinstance(wrapped, dict) else None
    return schema if isinstance(schema, dict) else None


def from_pb(settings: model_pb2.ModelSettings, handle: str) -> SettingsOut:
    """The wire's."""
    schema = plain(settings.response_schema) if settings.HasField("response_schema") else None
    word = model_pb2.ModelSettings.ReasoningEffort.Name(settings.reasoning_effort).removeprefix(_EFFORT).lower()
    budget = settings.max_reasoning_tokens if settings.HasField("max_reasoning_tokens") else None
    return SettingsOut(
        provider_type=handle.partition("/")[0],
        temperature=settings.temperature if settings.HasField("temperature") else None,
        max_output_tokens=settings.max_output_tokens if settings.HasField("max_output_tokens") else None,
        parallel_tool_calls=settings.parallel_tool_calls if settings.HasField("parallel_tool_calls") else None,
        reasoning={"reasoning_effort": word} if settings.reasoning_effort else None,
        thinking={"type": "enabled", "budget_tokens": budget} if budget is not None else None,
        response_format={"type": "json_schema", "json_schema": {"schema": schema}} if schema else None,
    )
