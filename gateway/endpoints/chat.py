"""Chat completions: an agent for every client that speaks to OpenAI's models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio

from common.ids import Prefix, is_id
from gateway.chat import errors as chat_errors
from gateway.chat import inputs
from gateway.chat.completion import Completion
from gateway.chat.model import ChatBody, ChatCompletion, ChatError
from gateway.http.endpoint import Empty, Endpoint, Exchange
from gateway.http.events import EventStream
from gateway.runs import answer
from gateway.runs.begin import Where

if TYPE_CHECKING:
    from gateway.messages.inputs import SendBody
    from gateway.runs.begin import Begun


async def complete(exchange: Exchange[ChatBody, Empty]) -> ChatCompletion | EventStream:
    """Say what is new to the agent that `model` names, and tell what it answers. The agent keeps its own history: only
    the user and tool messages after the last assistant message are said to it.
    """
    body = exchange.body
    if not is_id(Prefix.AGENT, body.model):
        raise chat_errors.model_not_found(body.model)
    begun = await _begin(exchange)
    completion = Completion(exchange, body.model, begun)
    if body.stream:
        options = body.stream_options
        return EventStream(completion.chunks(with_usage=options is not None and options.include_usage is True))
    return await answer.while_there(exchange, completion.whole())


async def _begin(exchange: Exchange[ChatBody, Empty]) -> Begun:
    saying: Exchange[SendBody, Any] = Exchange(
        path=exchange.path,
        query=exchange.query,
        body=inputs.said(exchange.body),
        headers=exchange.headers,
        caller=exchange.caller,
        backend=exchange.backend,
        gone=exchange.gone,
    )
    try:
        return await answer.begin(saying, Where(exchange.body.model, run_type="openai_chat_completions"))
    except grpc.aio.AioRpcError as error:
        if error.code() is grpc.StatusCode.NOT_FOUND:
            raise chat_errors.model_not_found(exchange.body.model) from None
        raise


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/chat/completions",
        summary="Speak to an agent as to a model of OpenAI",
        tag="chat",
        handler=complete,
        body=ChatBody,
        answer=ChatCompletion,
        streams=True,
        error=ChatError,
        refusal=chat_errors.refusal,
    ),
)
