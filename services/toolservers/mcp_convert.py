"""Tools and results of MCP servers as ours."""

import base64
import binascii
import json
from collections.abc import Iterable

from mcp import types as mcp_types

from services.messages.model import Image, Outcome, Text
from services.toolservers import content
from services.toolservers.api import Answer, ServerFailed
from services.toolservers.model import OfferedTool
from services.toolservers.offers import checked


def offered_from_mcp(tools: Iterable[mcp_types.Tool]) -> list[OfferedTool]:
    """What an MCP server offers. That a tool only reads is believed as far as parallel calls go."""
    return checked(
        [
            OfferedTool(
                tool.name,
                tool.description or tool.title or "",
                tool.input_schema,
                bool(tool.annotations and tool.annotations.read_only_hint),
            )
            for tool in tools
        ]
    )


def answer_from_mcp(result: mcp_types.CallToolResult) -> Answer:
    """The result of an MCP server."""
    parts = tuple(_block(block) for block in result.content)
    if not parts and result.structured_content is not None:
        parts = (content.text(json.dumps(result.structured_content, ensure_ascii=False)),)
    return Answer(Outcome.FAILED if result.is_error else Outcome.SUCCEEDED, parts)


def _block(block: mcp_types.ContentBlock) -> Text | Image:
    match block:
        case mcp_types.TextContent(text=said):
            return content.text(said)
        case mcp_types.ImageContent(data=data, mime_type=media_type):
            return content.image(_decoded(data), media_type)
        case mcp_types.ResourceLink(name=name, uri=uri):
            return content.text(f"{name}: {uri}")
        case mcp_types.EmbeddedResource(resource=mcp_types.TextResourceContents(text=said)):
            return content.text(said)
        case mcp_types.EmbeddedResource(resource=mcp_types.BlobResourceContents(blob=blob, mime_type=media_type)):
            return content.image(_decoded(blob), media_type or "")
        case mcp_types.AudioContent(data=data, mime_type=media_type):
            return content.left_out(len(_decoded(data)), media_type)
        case _:
            raise ServerFailed("broken", "answered with content of an unknown kind")


def _decoded(data: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise ServerFailed("broken", "answered with data that is not base64") from None
