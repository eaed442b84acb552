"""What users of the SDK write for themselves: merging chunks, approving, and living with its versions."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any

from letta_client import Letta

CLAUDE = "anthropic/claude-sonnet-4-5-20250929"
GPT = "openai/gpt-4o"

CODE = "740845635798344975"
TELL = f"You need not call it: the code is {CODE}"

# What the fake provider is told. It thinks, because Claude does.
ASK = """think about the code and call secret_code {"text": "hello world"} then think about it and say here it is"""
ASK_THEN_BREAK = """think about the code and call secret_code {"text": "hello world"} then fail llm_error"""
ASK_THEN_DRONE = """think about the code and call secret_code {"text": "hello world"} then count slowly to 3000"""
THANKS = "think kindly and say you are welcome"


def secret_code(text: str) -> str:
    """
    Tells the secret code of a text.

    Args:
        text (str): The text.

    Returns:
        str: Its code.
    """
    return str(sum(ord(letter) for letter in text))


def roll_dice(num_sides: int) -> str:
    """
    Rolls a die.

    Args:
        num_sides (int): How many sides it has.

    Returns:
        str: The number on top.
    """
    import random  # noqa: PLC0415 - it runs elsewhere, and only this much of it is sent there

    return str(random.randint(1, num_sides))


def upsert(client: Letta, function: Callable[..., Any], **options: Any) -> Any:
    """Register a function; the newest SDK has lost the method for it."""
    if hasattr(client.tools, "upsert_from_function"):
        return client.tools.upsert_from_function(func=function, **options)
    return client.tools.upsert(source_code=inspect.getsource(function), **options)


def user(text: str, otid: str | None = None) -> list[Any]:
    """One message of a user."""
    return [{"role": "user", "content": text, **({"otid": otid} if otid else {})}]


def approval(*entries: dict[str, Any]) -> dict[str, Any]:
    """An answer to what waits."""
    return {"type": "approval", "approvals": list(entries)}


def approve(call_id: str) -> dict[str, Any]:
    """Let it run."""
    return {"type": "approval", "approve": True, "tool_call_id": call_id}


def deny(call_id: str, reason: str | None = None) -> dict[str, Any]:
    """Do not let it run."""
    entry = {"type": "approval", "approve": False, "tool_call_id": call_id}
    return {**entry, "reason": reason} if reason else entry


def returned(call_id: str, value: str = CODE) -> dict[str, Any]:
    """It ran here, and returned this."""
    return {"type": "tool", "tool_call_id": call_id, "tool_return": value, "status": "success"}


def merged(chunks: Iterable[Any]) -> list[Any]:
    """Chunks of one kind in a row as one message."""
    messages: list[Any] = []
    for chunk in chunks:
        if not hasattr(chunk, "message_type"):
            continue
        last = messages[-1] if messages else None
        if last is None or last.message_type != chunk.message_type:
            messages.append(chunk)
        elif hasattr(last, "content") and hasattr(chunk, "content"):
            last.content += chunk.content
    return messages


def kinds(messages: Iterable[Any]) -> list[str]:
    """What they are."""
    return [message.message_type for message in messages]


def of(thing: Any, name: str) -> Any:
    """A field of what older SDKs leave a plain dict and newer ones make an object."""
    return thing[name] if isinstance(thing, dict) else getattr(thing, name)


class Agent:
    """One agent, and what its user says to it."""

    def __init__(self, client: Letta, agent_id: str) -> None:
        self.client = client
        self.id = agent_id

    def send(self, messages: list[Any], **options: Any) -> Any:
        """Say something and wait for the answer."""
        return self.client.agents.messages.create(agent_id=self.id, messages=messages, **options)

    def stream(self, messages: list[Any], **options: Any) -> list[Any]:
        """Say something and read the stream to its end."""
        return merged(self.open(messages, **options))

    def open(self, messages: list[Any], **options: Any) -> Any:
        """Say something; the open stream."""
        return self.client.agents.messages.stream(agent_id=self.id, messages=messages, **options)

    def ask(self, text: str = ASK) -> str:
        """Say something that makes a call wait; the call's id."""
        last = self.send(user(text)).messages[-1]
        assert last.message_type == "approval_request_message"
        call_id: str = last.tool_call.tool_call_id
        return call_id

    def answer(self, *entries: dict[str, Any]) -> Any:
        """Answer what waits, and wait for what comes of it."""
        return self.send([approval(*entries)])

    def log(self, **options: Any) -> list[Any]:
        """Its messages."""
        return list(self.client.agents.messages.list(agent_id=self.id, **options).items)

    def latest(self) -> str:
        """The id of its latest message."""
        message_id: str = self.log(limit=1)[0].id
        return message_id

    def context(self) -> dict[str, Any]:
        """What its model would be shown."""
        found: dict[str, Any] = self.client.get(f"/v1/agents/{self.id}/context", cast_to=dict[str, Any])
        return found

    def state(self, **options: Any) -> Any:
        """Itself."""
        return self.client.agents.retrieve(agent_id=self.id, **options)
