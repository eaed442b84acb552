"""A client of the gateway that speaks plain HTTP, and reads events as the SDKs do."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from msgspec import Struct

from tests.helpers.inprocess import AgentClient, World

JSON = dict[str, Any]
HEADERS = {"content-type": "application/json"}


class Frame(Struct, frozen=True):
    """One server-sent event: its name, if it has one, and its JSON (None for the end marker)."""

    event: str
    data: Any

    @property
    def type(self) -> str:
        """The message type; `[DONE]` for the end marker."""
        return "[DONE]" if self.data is None else str(self.data["message_type"])


class Gateway:
    """The HTTP side of a world."""

    def __init__(self, world: World, http: httpx2.AsyncClient) -> None:
        self.world = world
        self.http = http

    async def call(self, method: str, path: str, body: Any = None, expect: int = 200, **more: Any) -> Any:
        """The JSON of an answer, which must have this status."""
        answer = await self.http.request(method, path, json=body, **more)
        assert answer.status_code == expect, answer.text
        assert answer.headers["content-type"] == "application/json"
        return answer.json()

    async def get(self, path: str, expect: int = 200, **params: Any) -> Any:
        """The JSON of a read."""
        return await self.call("GET", path, expect=expect, params=params)

    async def say(self, agent: AgentClient, text: str, expect: int = 200, **body: Any) -> Any:
        """Say something and wait for the answer."""
        said = {"messages": [{"role": "user", "content": text}], **body}
        return await self.call("POST", f"/v1/agents/{agent.id}/messages", said, expect)

    async def answer(self, agent: AgentClient, *approvals: JSON, expect: int = 200, **body: Any) -> Any:
        """Answer an approval and wait for what comes of it."""
        said = {"messages": [approval(*approvals)], **body}
        return await self.call("POST", f"/v1/agents/{agent.id}/messages", said, expect)

    @asynccontextmanager
    async def open(self, path: str, body: JSON, **more: Any) -> AsyncIterator[AsyncIterator[Frame]]:
        """An event stream, frame by frame."""
        async with self.http.stream("POST", path, json=body, **more) as answer:
            if answer.status_code != 200:
                await answer.aread()
            assert answer.status_code == 200, answer.text
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield _frames(answer)

    async def frames(self, path: str, body: JSON, **more: Any) -> list[Frame]:
        """All frames of an event stream."""
        async with self.open(path, body, **more) as frames:
            return [frame async for frame in frames]

    async def stream(self, agent: AgentClient, text: str, **body: Any) -> list[Frame]:
        """Say something; every frame of the answer."""
        said = {"messages": [{"role": "user", "content": text}], **body}
        return await self.frames(f"/v1/agents/{agent.id}/messages/stream", said)


def approval(*approvals: JSON, **more: Any) -> JSON:
    """A message that decides."""
    return {"type": "approval", "approvals": list(approvals), **more}


def approve(call_id: str) -> JSON:
    """A call may be made."""
    return {"type": "approval", "approve": True, "tool_call_id": call_id}


def deny(call_id: str, reason: str | None = None) -> JSON:
    """A call may not be made."""
    return {"type": "approval", "approve": False, "tool_call_id": call_id, "reason": reason}


def returned(call_id: str, text: Any, status: str = "success") -> JSON:
    """A call was made by the client."""
    return {"type": "tool", "tool_call_id": call_id, "tool_return": text, "status": status}


def types(messages: list[Any]) -> list[str]:
    """The types of messages or frames."""
    return [each.type if isinstance(each, Frame) else each["message_type"] for each in messages]


def text_of(frames: list[Frame]) -> str:
    """What the model said, put together from deltas."""
    return "".join(frame.data["content"] for frame in frames if frame.type == "assistant_message")


async def _frames(answer: httpx2.Response) -> AsyncIterator[Frame]:
    """Frames as the SDKs take them apart: lines up to a blank one; comments are skipped."""
    event, data = "", list[str]()
    async for line in answer.aiter_lines():
        if line.startswith("event: "):
            event = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif not line and data:
            text = "\n".join(data)
            yield Frame(event, None if text == "[DONE]" else json.loads(text))
            event, data = "", []
        else:
            assert not line or line.startswith(":"), f"not a line of an event stream: {line!r}"
