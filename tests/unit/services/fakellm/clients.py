"""The three APIs through the vendors' own clients, so that one test can speak to all of them."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI

from services.fakellm.scripts import Api
from services.fakellm.server import FakeLlm
from tests.helpers.fakellm import anthropic_client, openai_client


@dataclass
class Turn:
    """What a client understood."""

    text: str = ""
    thought: str = ""
    # Signature and redacted reasoning.
    sealed: list[str] = field(default_factory=list)
    refusal: str = ""
    # (id, name, arguments)
    calls: list[tuple[str, str, Any]] = field(default_factory=list)
    finish: str | None = None
    # Prompt, completion, cached, cache-write, reasoning.
    usage: tuple[int, ...] | None = None


Ask = Callable[..., Awaitable[Turn]]
TOOLS = ("a", "b")


@asynccontextmanager
async def client_of(api: Api, fake: FakeLlm) -> AsyncIterator[Ask]:
    """A function that asks one thing of one API: `await ask("hello", stream=True)`."""
    if api is Api.MESSAGES:
        async with anthropic_client(fake) as anthropic:
            yield lambda text, *, stream, model="m": _ask_messages(anthropic, text, stream, model)
    else:
        asking = _ask_chat if api is Api.CHAT else _ask_responses
        async with openai_client(fake) as openai:
            yield lambda text, *, stream, model="m": asking(openai, text, stream, model)


async def _ask_chat(client: AsyncOpenAI, text: str, stream: bool, model: str) -> Turn:
    messages: Any = [{"role": "user", "content": text}]
    if not stream:
        completion = await client.chat.completions.create(model=model, messages=messages)
        choice = completion.choices[0]
        turn = Turn(choice.message.content or "", finish=choice.finish_reason, refusal=choice.message.refusal or "")
        turn.thought = (choice.message.model_extra or {}).get("reasoning_content", "")
        for call in choice.message.tool_calls or ():
            assert call.type == "function"
            turn.calls.append((call.id, call.function.name, call.function.arguments))
        turn.usage = _chat_usage(completion.usage)
        return turn
    turn = Turn()
    calls: dict[int, list[str]] = {}
    chunks = await client.chat.completions.create(
        model=model, messages=messages, stream=True, stream_options={"include_usage": True}
    )
    async for chunk in chunks:
        _add_chunk(turn, calls, chunk)
    turn.calls = [(call[0], call[1], call[2]) for _, call in sorted(calls.items())]
    return turn


def _add_chunk(turn: Turn, calls: dict[int, list[str]], chunk: Any) -> None:
    if chunk.usage is not None:
        turn.usage = _chat_usage(chunk.usage)
    for choice in chunk.choices:
        turn.text += choice.delta.content or ""
        turn.refusal += choice.delta.refusal or ""
        turn.thought += (choice.delta.model_extra or {}).get("reasoning_content") or ""
        turn.finish = choice.finish_reason or turn.finish
        for piece in choice.delta.tool_calls or ():
            call = calls.setdefault(piece.index, ["", "", ""])
            call[0] += piece.id or ""
            call[1] += piece.function.name or ""
            call[2] += piece.function.arguments or ""


def _chat_usage(usage: Any) -> tuple[int, ...] | None:
    if usage is None:
        return None
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    return (
        usage.prompt_tokens,
        usage.completion_tokens,
        prompt.cached_tokens,
        prompt.cache_write_tokens,
        completion.reasoning_tokens,
    )


async def _ask_responses(client: AsyncOpenAI, text: str, stream: bool, model: str) -> Turn:
    if stream:
        # The SDK's own accumulator: it fails if an event refers to something that was not announced.
        async with client.responses.stream(model=model, input=text) as events:
            seen = [event async for event in events]
        assert [event.sequence_number for event in seen] == list(range(len(seen))), seen
        response: Any = getattr(seen[-1], "response", None)
        _check_deltas(seen, response)
    else:
        response = await client.responses.create(model=model, input=text)
    turn = Turn(response.output_text)
    turn.finish = response.incomplete_details.reason if response.incomplete_details else response.status
    for item in response.output:
        if item.type == "function_call":
            turn.calls.append((item.call_id, item.name, item.arguments))
        elif item.type == "reasoning":
            turn.thought += "".join(part.text for part in item.summary)
            turn.sealed += [item.encrypted_content] if item.encrypted_content else []
        else:
            turn.refusal += "".join(part.refusal for part in item.content if part.type == "refusal")
    if response.usage is not None:
        details = response.usage.input_tokens_details
        reasoning = response.usage.output_tokens_details.reasoning_tokens
        sizes = (response.usage.input_tokens, response.usage.output_tokens)
        turn.usage = (*sizes, details.cached_tokens, details.cache_write_tokens, reasoning)
    return turn


def _check_deltas(seen: list[Any], response: Any) -> None:
    """What the deltas add up to is what the last event says."""
    text = "".join(event.delta for event in seen if event.type == "response.output_text.delta")
    assert text == response.output_text
    for index, item in enumerate(response.output):
        if item.type == "function_call":
            kind = "response.function_call_arguments.delta"
            pieces = [event.delta for event in seen if event.type == kind and event.output_index == index]
            assert "".join(pieces) == item.arguments


async def _ask_messages(client: AsyncAnthropic, text: str, stream: bool, model: str) -> Turn:
    asked: Any = {"model": model, "max_tokens": 100, "messages": [{"role": "user", "content": text}]}
    if stream:
        async with client.messages.stream(**asked) as events:
            message: Any = await events.get_final_message()
    else:
        message = await client.messages.create(**asked)
    turn = Turn(finish=message.stop_reason)
    for block in message.content:
        if block.type == "text":
            turn.text += block.text
        elif block.type == "thinking":
            turn.thought += block.thinking
            turn.sealed += [block.signature] if block.signature else []
        elif block.type == "redacted_thinking":
            turn.sealed.append(block.data)
        else:
            turn.calls.append((block.id, block.name, block.input))
    usage = message.usage
    if usage is not None:
        cache = (usage.cache_read_input_tokens, usage.cache_creation_input_tokens)
        thought = usage.output_tokens_details.thinking_tokens if usage.output_tokens_details else 0
        turn.usage = (usage.input_tokens + sum(cache), usage.output_tokens, *cache, thought)
    return turn
