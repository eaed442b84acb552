"""Search and compaction: what gRPC is asked for, and how its answer is shown. The services are stand-ins."""

from typing import Any

import pytest

from common.pb.bridle.v1 import (
    conversation_pb2,
    conversation_service_pb2,
    conversation_service_pb2_grpc,
    message_pb2,
    message_service_pb2,
    message_service_pb2_grpc,
)
from common.rpc.inprocess import InProcessChannel
from gateway.backend import Caller
from gateway.endpoints import conversations, messages
from gateway.endpoints.search import SearchBody
from gateway.http import decode
from gateway.http.endpoint import Empty, Exchange

CONVERSATION = "conv-123e4567-e89b-42d3-8456-426614174000"


class Messages(message_service_pb2_grpc.MessageServiceServicer):
    asked: message_service_pb2.SearchMessagesRequest

    async def SearchMessages(self, request: Any, context: Any) -> message_service_pb2.SearchMessagesResponse:
        self.asked = request
        parts = [
            message_pb2.Part(reasoning=message_pb2.Reasoning(text="about cats")),
            message_pb2.Part(text=message_pb2.Text(text="Cats are fine")),
            message_pb2.Part(text=message_pb2.Text(text="so are dogs")),
        ]
        found = message_pb2.Message(
            id="message-1", agent_id="agent-1", role=message_pb2.Message.ROLE_ASSISTANT, parts=parts
        )
        return message_service_pb2.SearchMessagesResponse(messages=[found])


class Conversations(conversation_service_pb2_grpc.ConversationServiceServicer):
    async def GetConversation(self, request: Any, context: Any) -> conversation_pb2.Conversation:
        return conversation_pb2.Conversation(id=request.conversation_id)

    async def CompactConversation(
        self, request: Any, context: Any
    ) -> conversation_service_pb2.CompactConversationResponse:
        return conversation_service_pb2.CompactConversationResponse(
            summary=f"of {request.conversation_id}", messages_before=9, messages_after=2
        )


class Stubs:
    """The two services that are asked."""

    def __init__(self, said: Messages) -> None:
        channel: Any = InProcessChannel(())
        message_service_pb2_grpc.add_MessageServiceServicer_to_server(said, channel)
        conversation_service_pb2_grpc.add_ConversationServiceServicer_to_server(Conversations(), channel)
        self.messages = message_service_pb2_grpc.MessageServiceStub(channel)
        self.conversations = conversation_service_pb2_grpc.ConversationServiceStub(channel)


@pytest.fixture
def said() -> Messages:
    return Messages()


def exchange(said: Messages, body: Any, path: dict[str, str]) -> Exchange[Any, Any]:
    async def never() -> None:
        raise AssertionError("nobody waits for that")

    backend: Any = Stubs(said)
    return Exchange(
        path=path,
        query=conversations.AgentQuery(),
        body=body,
        headers={},
        caller=Caller(()),
        backend=backend,
        gone=never,
    )


async def test_what_was_found_is_shown_by_its_parts(said: Messages) -> None:
    raw = b'{"query": "cats", "limit": 5, "agent_id": "agent-1", "start_date": "2026-01-02T03:04:05Z"}'
    body = decode.body(raw, "application/json", SearchBody)
    found = await messages.search_all(exchange(said, body, {}))
    assert (said.asked.query, said.asked.page_size, said.asked.agent_id) == ("cats", 5, "agent-1")
    assert said.asked.created_after.ToJsonString() == "2026-01-02T03:04:05Z"
    assert not said.asked.HasField("created_before")
    assert [(each.message_type, each.content, each.reasoning) for each in found] == [
        ("reasoning_message", None, "about cats"),
        ("assistant_message", "Cats are fine", None),
    ]


async def test_a_compaction_says_what_it_did(said: Messages) -> None:
    done = await conversations.compact(exchange(said, Empty(), {"conversation_id": CONVERSATION}))
    assert (done.summary, done.num_messages_before, done.num_messages_after) == (f"of {CONVERSATION}", 9, 2)
