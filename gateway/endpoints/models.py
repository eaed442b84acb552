"""Models and tags: what there is to choose from."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct

from common.pb.bridle.v1 import agent_service_pb2, model_service_pb2
from gateway.http.endpoint import Endpoint, Exchange
from gateway.messages.listing import Limit, Order
from gateway.paging import Cursor, pages, window


class ModelsQuery(Struct, frozen=True, kw_only=True):
    """Which models."""

    provider_category: list[str] | None = None
    provider_name: str | None = None
    provider_type: str | None = None


class Model(Struct, frozen=True, kw_only=True):
    """A model that agents can use."""

    handle: str
    name: str
    display_name: str
    model: str
    model_type: str = "llm"
    model_endpoint_type: str
    provider_type: str
    provider_name: str
    context_window: int
    max_context_window: int
    provider_category: str = "base"
    model_endpoint: None = None
    temperature: float = 1.0
    parallel_tool_calls: bool = False
    enable_reasoner: bool = True


class EmbeddingQuery(Struct, frozen=True):
    """Which embedding models; there are none."""


class TagsQuery(Struct, frozen=True, kw_only=True):
    """Which tags."""

    query_text: str | None = None
    before: str | None = None
    after: str | None = None
    limit: Limit = 50
    order: Order = "asc"


async def list_models(exchange: Exchange[None, ModelsQuery]) -> list[Model]:
    """Models that agents can use."""
    query = exchange.query
    request = model_service_pb2.ListModelsRequest(provider=query.provider_name or query.provider_type or "")
    if query.provider_category is not None and "base" not in query.provider_category:
        return []
    return [
        Model(
            handle=each.handle,
            name=each.name,
            display_name=each.name,
            model=each.name,
            model_endpoint_type=each.provider,
            provider_type=each.provider,
            provider_name=each.provider,
            context_window=each.context_window,
            max_context_window=each.context_window,
        )
        async for each in pages(exchange, exchange.backend.models.ListModels, request, "models")
    ]


async def list_embeddings(exchange: Exchange[None, EmbeddingQuery]) -> list[Any]:
    """None: nothing here embeds anything."""
    return []


async def list_tags(exchange: Exchange[None, TagsQuery]) -> list[str]:
    """Tags of agents."""
    query = exchange.query
    request = agent_service_pb2.ListTagsRequest(query=query.query_text or "")
    found = pages(exchange, exchange.backend.agents.ListTags, request, "tags")
    if query.order == "desc":
        names = [tag async for tag in found]
        found = _each(names[::-1])
    return await window(found, Cursor(query.limit, query.after, query.before), str)


async def _each(names: list[str]) -> Any:
    for name in names:
        yield name


ENDPOINTS: Final = (
    Endpoint(
        method="GET",
        path="/v1/models",
        summary="List models",
        tag="models",
        handler=list_models,
        query=ModelsQuery,
        answer=list[Model],
    ),
    Endpoint(
        method="GET",
        path="/v1/models/embedding",
        summary="List embedding models",
        tag="models",
        handler=list_embeddings,
        query=EmbeddingQuery,
        answer=list[Model],
    ),
    Endpoint(
        method="GET",
        path="/v1/tags",
        summary="List the tags of agents",
        tag="tags",
        handler=list_tags,
        query=TagsQuery,
        answer=list[str],
    ),
)
