"""The tools that servers offer, checked: what they say is told to models."""

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from common.pb.bridle.v1 import tool_executor_pb2
from services.toolservers.api import MAX_DESCRIPTION, ServerFailed
from services.toolservers.model import OfferedTool
from services.wire.wellknown import numbers, to_dict

_MAX_NAME: Final = 256
_MAX_PARAMETERS: Final = 64 * 1024
_NOTHING: Final[dict[str, Any]] = {"type": "object", "properties": {}}


def offered_from_pb(tools: Iterable[tool_executor_pb2.ExecutorTool]) -> list[OfferedTool]:
    """What a ToolExecutor offers."""
    return checked(
        [
            OfferedTool(tool.name, tool.description, to_dict(tool.parameters), tool.parallel, tool.idempotent)
            for tool in tools
        ]
    )


def checked(tools: Sequence[OfferedTool]) -> list[OfferedTool]:
    """A list of tools as they may be kept. Raises ServerFailed."""
    seen: set[str] = set()
    for tool in tools:
        if not 0 < len(tool.name) <= _MAX_NAME or not tool.name.isprintable():
            raise ServerFailed("broken", f"offers a tool whose name has not 1 to {_MAX_NAME} printable characters")
        if tool.name in seen:
            raise ServerFailed("broken", f"offers the tool '{tool.name}' twice")
        seen.add(tool.name)
    return [_fit(tool) for tool in tools]


def _fit(tool: OfferedTool) -> OfferedTool:
    parameters = tool.parameters or _NOTHING
    if parameters.get("type", "object") != "object" or not all(map(math.isfinite, numbers(parameters))):
        raise ServerFailed("broken", f"offers the tool '{tool.name}' with parameters that are not a JSON object's")
    if len(json.dumps(parameters)) > _MAX_PARAMETERS:
        raise ServerFailed(
            "broken", f"offers the tool '{tool.name}' with more than {_MAX_PARAMETERS:,} bytes of parameters"
        )
    description = tool.description.replace("\0", "")[:MAX_DESCRIPTION]
    return OfferedTool(tool.name, description, {"type": "object", **parameters}, tool.parallel, tool.idempotent)
