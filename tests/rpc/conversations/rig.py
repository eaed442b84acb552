"""A client of ConversationService that says a lot in one line."""

from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from common.pb.bridle.v1 import conversation_pb2
from common.pb.bridle.v1 import conversation_service_pb2 as api
from tests.helpers.inprocess import Message, World, text_of

Conversation = conversation_pb2.Conversation


class Conversations:
    """Conversations of one server."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.stub: Any = world.conversations

    async def create(self, agent_id: str, request_id: str = "", **fields: Any) -> Conversation:
        conversation = Conversation(agent_id=agent_id, **fields)
        request = api.CreateConversationRequest(conversation=conversation, request_id=request_id)
        made: Conversation = await self.stub.CreateConversation(request, timeout=10)
        return made

    async def get(self, conversation_id: str) -> Conversation:
        request = api.GetConversationRequest(conversation_id=conversation_id)
        found: Conversation = await self.stub.GetConversation(request, timeout=10)
        return found

    async def page(self, agent_id: str = "", size: int = 0, token: str = "") -> tuple[list[Conversation], str]:
        request = api.ListConversationsRequest(agent_id=agent_id, page_size=size, page_token=token)
        page = await self.stub.ListConversations(request, timeout=10)
        return list(page.conversations), page.next_page_token

    async def update(self, conversation: Conversation, *paths: str) -> Conversation:
        mask = FieldMask(paths=paths) if paths else None
        request = api.UpdateConversationRequest(conversation=conversation, update_mask=mask)
        changed: Conversation = await self.stub.UpdateConversation(request, timeout=10)
        return changed

    async def delete(self, conversation_id: str) -> None:
        await self.stub.DeleteConversation(api.DeleteConversationRequest(conversation_id=conversation_id), timeout=10)

    async def fork(self, conversation_id: str, request_id: str = "") -> Conversation:
        request = api.ForkConversationRequest(conversation_id=conversation_id, request_id=request_id)
        made: Conversation = await self.stub.ForkConversation(request, timeout=10)
        return made

    async def reset(self, conversation_id: str) -> Conversation:
        request = api.ResetConversationRequest(conversation_id=conversation_id)
        changed: Conversation = await self.stub.ResetConversation(request, timeout=10)
        return changed

    async def compact(self, conversation_id: str) -> api.CompactConversationResponse:
        request = api.CompactConversationRequest(conversation_id=conversation_id)
        done: api.CompactConversationResponse = await self.stub.CompactConversation(request, timeout=10)
        return done

    async def log(self, conversation_id: str, **fields: Any) -> list[Message]:
        return await self.world.log(conversation_id=conversation_id, **fields)

    async def texts(self, conversation_id: str, **fields: Any) -> list[str]:
        return [text_of(message) for message in await self.log(conversation_id, **fields)]
