"""A client of ToolService that says a lot in one line."""

from collections.abc import Sequence
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.struct_pb2 import Struct

from common.pb.bridle.v1 import tool_service_pb2 as api
from common.pb.bridle.v1.message_pb2 import ToolReturn
from common.pb.bridle.v1.tool_pb2 import PythonTool, Tool
from common.pb.bridle.v1.tool_rule_pb2 import ToolRule
from tests.helpers.inprocess import World


class Tools:
    """Tools of one server, and of its agents."""

    def __init__(self, world: World) -> None:
        self.stub: Any = world.tools

    async def upsert(
        self, source: str, *, request_id: str = "", pip_requirements: Sequence[str] = (), **fields: Any
    ) -> Tool:
        tool = Tool(python=PythonTool(source=source, pip_requirements=pip_requirements), **fields)
        return await self.put(tool, request_id)

    async def put(self, tool: Tool, request_id: str = "") -> Tool:
        request = api.UpsertToolRequest(tool=tool, request_id=request_id)
        made: Tool = await self.stub.UpsertTool(request, timeout=10)
        return made

    async def get(self, tool_id: str) -> Tool:
        tool: Tool = await self.stub.GetTool(api.GetToolRequest(tool_id=tool_id), timeout=10)
        return tool

    async def update(self, tool: Tool, *paths: str) -> Tool:
        request = api.UpdateToolRequest(tool=tool, update_mask=FieldMask(paths=paths))
        changed: Tool = await self.stub.UpdateTool(request, timeout=10)
        return changed

    async def delete(self, tool_id: str) -> None:
        await self.stub.DeleteTool(api.DeleteToolRequest(tool_id=tool_id), timeout=10)

    async def run(self, tool_id: str, agent_id: str = "", **arguments: Any) -> ToolReturn:
        request = api.RunToolRequest(tool_id=tool_id, agent_id=agent_id, arguments=struct(**arguments))
        result: ToolReturn = (await self.stub.RunTool(request, timeout=10)).result
        return result

    def listing(self, **fields: Any) -> api.ListToolsRequest:
        return api.ListToolsRequest(**fields)

    async def attach(self, agent_id: str, tool_id: str) -> None:
        await self.stub.AttachTool(api.AttachToolRequest(agent_id=agent_id, tool_id=tool_id), timeout=10)

    async def detach(self, agent_id: str, tool_id: str) -> None:
        await self.stub.DetachTool(api.DetachToolRequest(agent_id=agent_id, tool_id=tool_id), timeout=10)

    async def guard(self, agent_id: str, tool_name: str, required: bool = True) -> None:
        request = api.SetToolApprovalRequest(agent_id=agent_id, tool_name=tool_name, requires_approval=required)
        await self.stub.SetToolApproval(request, timeout=10)

    async def page(self, **fields: Any) -> tuple[list[str], str]:
        page = await self.stub.ListTools(api.ListToolsRequest(**fields), timeout=10)
        return [tool.name for tool in page.tools], page.next_page_token

    async def names(self, **fields: Any) -> list[str]:
        return (await self.page(**fields))[0]


def approval_rule(tool_name: str) -> ToolRule:
    """The rule that puts a tool behind a person."""
    return ToolRule(tool_name=tool_name, requires_approval=ToolRule.RequiresApproval())


def source_of(name: str, description: str = "Adds.") -> str:
    """A tool with this name."""
    return f'''
def {name}(a: int, b: int = 1) -> int:
    """{description}

    Args:
        a: One.
        b: The other.
    """
    return a + b
'''


def struct(**values: Any) -> Struct:
    """A JSON object."""
    made = Struct()
    made.update(values)
    return made
