"""A client of ToolService that says a lot in one line."""

from typing import Any

from common.pb.bridle.v1 import tool_service_pb2 as api
from common.pb.bridle.v1.tool_rule_pb2 import ToolRule
from tests.helpers.inprocess import World


class Tools:
    """Tools of one server, and of its agents."""

    def __init__(self, world: World) -> None:
        self.stub: Any = world.tools

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
