"""The fake provider without a client: bodies as they are sent, events as they come."""

import asyncio
import json
from typing import Any

from services.fakellm.scripts import Api
from tests.helpers.fakellm import FakeLlm

PATHS = {Api.CHAT: "/v1/chat/completions", Api.RESPONSES: "/v1/responses", Api.MESSAGES: "/v1/messages"}


def body(api: Api, text: str = "hi", **fields: Any) -> dict[str, Any]:
    """The smallest request of an API."""
    messages = [{"role": "user", "content": text}]
    if api is Api.RESPONSES:
        return {"model": "m", "input": messages, **fields}
    return {"model": "m", "messages": messages, **({"max_tokens": 9} if api is Api.MESSAGES else {}), **fields}


def encoded(api: Api, given: dict[str, Any], *headers: str) -> bytes:
    """A request as bytes."""
    data = json.dumps(given).encode()
    lines = [f"POST {PATHS[api]} HTTP/1.1", "host: fake", f"content-length: {len(data)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + data


async def exchange(fake: FakeLlm, request: bytes) -> bytes:
    """All bytes that come back until the other side hangs up."""
    host, _, port = fake.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def post(fake: FakeLlm, api: Api, given: dict[str, Any], *headers: str) -> tuple[int, bytes]:
    """Status and body."""
    answer = await exchange(fake, encoded(api, given, "connection: close", *headers))
    head, _, rest = answer.partition(b"\r\n\r\n")
    status = int(head.split(b" ")[1])
    return status, b"".join(chunks(rest)) if b"chunked" in head else rest


def chunks(data: bytes) -> list[bytes]:
    """The HTTP chunks of a body, as far as they are whole."""
    found = []
    while data:
        size, _, data = data.partition(b"\r\n")
        length = int(size, 16)
        if length:
            found.append(data[:length])
        data = data[length + 2 :]
    return found


def events(data: bytes) -> list[tuple[str, Any]]:
    """Name and data of each event; data that is not JSON stays text."""
    found = []
    for block in data.decode().replace("\r\n", "\n").split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line)
        if "data" in lines:
            text = lines["data"]
            found.append((lines.get("event", ""), json.loads(text) if text.startswith("{") else text))
    return found
