"""Messages are found by what was said in them, and by nothing else."""

from datetime import UTC, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from common.ids import Prefix, new_id
from common.pb.bridle.v1 import conversation_pb2, conversation_service_pb2
from common.pb.bridle.v1 import message_service_pb2 as api
from tests.helpers.inprocess import Message, World, invalid, not_found, return_text, returns_of, text_of
from tests.helpers.models import call, say, think


async def page(world: World, query: str, **fields: Any) -> tuple[list[Message], str]:
    found = await world.messages.SearchMessages(api.SearchMessagesRequest(query=query, **fields), timeout=10)
    return list(found.messages), found.next_page_token


async def texts(world: World, query: str, **fields: Any) -> list[str]:
    messages, _ = await page(world, query, **fields)
    return [text_of(message) or return_text(returns_of([message])[0]) for message in messages]


async def test_every_word_must_occur_whatever_its_case(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(say("Die STRASSE ist lang"), say("ok"))
    await agent.send("Wie lang ist die Straße nach Zürich?")
    found = ["Die STRASSE ist lang", "Wie lang ist die Straße nach Zürich?"]
    assert await texts(world, "straße", agent_id=agent.id) == found
    assert await texts(world, "LANG strasse", agent_id=agent.id) == found
    assert await texts(world, "  zÜRICH \n lang ", agent_id=agent.id) == found[1:]
    assert await texts(world, "strasse rom", agent_id=agent.id) == []


async def test_wildcards_are_letters_like_others(world: World) -> None:
    agent = await world.make_agent()
    for text in ("100% sure", "100 percent", "snake_case", "snakeXcase", "a\\b", "a/b"):
        await agent.send(text)
    for query in ("100%", "e_c", "a\\b", "a/b"):
        (found,) = await texts(world, query, agent_id=agent.id)
        assert query in found


async def test_what_tools_returned_is_found_and_how_it_is_stored_is_not(world: World) -> None:
    agent = await world.make_agent(["look"])
    agent.model.will(call("look", before=(think("ponder"),), where="downtown"), say("done"))
    await agent.send("any offers?")
    assert await texts(world, "café 20%", agent_id=agent.id) == ["It is 20% off at Café Zoë."]
    for query in ("ponder", "downtown", "tool_return", "parts", "look"):
        assert await texts(world, query, agent_id=agent.id) == []


async def test_a_nul_is_no_obstacle(world: World) -> None:
    agent = await world.make_agent()
    agent.model.will(say("before\0after"))
    await agent.send("go")
    assert await texts(world, "after before", agent_id=agent.id) == ["before\0after"]


async def test_agents_conversations_and_times_narrow_the_search(world: World) -> None:
    word = new_id(Prefix.RUN)
    one, two = await world.make_agent(), await world.make_agent()
    made = conversation_service_pb2.CreateConversationRequest(
        conversation=conversation_pb2.Conversation(agent_id=one.id)
    )
    side = await world.conversations.CreateConversation(made)
    await one.send(f"{word} 1")
    await one.send(f"{word} 2", conversation_id=side.id)
    await two.send(f"{word} 3")
    assert await texts(world, word) == [f"{word} {n}" for n in (3, 2, 1)]
    assert await texts(world, word, agent_id=one.id) == [f"{word} 2", f"{word} 1"]
    assert await texts(world, word, conversation_id=side.id) == [f"{word} 2"]
    assert await texts(world, word, agent_id=two.id, conversation_id=side.id) == []
    messages, _ = await page(world, word)
    middle = messages[1].create_time
    assert await texts(world, word, created_after=middle) == [f"{word} 3", f"{word} 2"]
    assert await texts(world, word, created_before=middle) == [f"{word} 1"]
    end = Timestamp()
    end.FromDatetime(middle.ToDatetime(UTC) + timedelta(microseconds=1))
    assert await texts(world, word, created_after=middle, created_before=end) == [f"{word} 2"]
    gone = conversation_service_pb2.DeleteConversationRequest(conversation_id=side.id)
    await world.conversations.DeleteConversation(gone)
    assert await texts(world, word) == [f"{word} 3", f"{word} 1"]
    assert await not_found(page(world, word, conversation_id=side.id)) == ("conversation", side.id)


async def test_a_copied_conversation_can_be_searched(world: World) -> None:
    agent = await world.make_agent()
    await agent.send("needle in the original")
    fork = await world.conversations.ForkConversation(
        conversation_service_pb2.ForkConversationRequest(conversation_id=agent.conversation_id)
    )
    assert await texts(world, "needle", conversation_id=fork.id) == ["needle in the original"]


async def test_findings_come_in_pages(world: World) -> None:
    agent = await world.make_agent()
    for number in range(5):
        await agent.send(f"needle {number}")
    first, token = await page(world, "needle", agent_id=agent.id, page_size=2)
    second, token2 = await page(world, "needle", agent_id=agent.id, page_size=2, page_token=token)
    third, end = await page(world, "needle", agent_id=agent.id, page_size=2, page_token=token2)
    assert [text_of(each) for each in (*first, *second, *third)] == [f"needle {n}" for n in (4, 3, 2, 1, 0)]
    assert end == ""
    assert await invalid(page(world, "other", agent_id=agent.id, page_token=token)) == ["page_token"]


def at(seconds: int, nanos: int = 0) -> Timestamp:
    return Timestamp(seconds=seconds, nanos=nanos)


WRONG: list[tuple[dict[str, Any], list[str]]] = [
    ({"query": ""}, ["query"]),
    ({"query": " \n"}, ["query"]),
    ({"query": "x" * 1001}, ["query"]),
    ({"query": "\0"}, ["query"]),
    ({"agent_id": "x", "conversation_id": "y"}, ["agent_id", "conversation_id"]),
    ({"created_after": at(253_402_300_800)}, ["created_after"]),
    ({"created_before": at(-62_135_596_801)}, ["created_before"]),
    ({"created_before": at(1, -1)}, ["created_before"]),
    ({"created_after": at(5), "created_before": at(5)}, ["created_before"]),
    ({"page_size": -1}, ["page_size"]),
    ({"page_token": "x"}, ["page_token"]),
]


@pytest.mark.parametrize(("fields", "named"), WRONG)
async def test_a_search_that_breaks_a_rule_is_refused(world: World, fields: dict[str, Any], named: list[str]) -> None:
    assert await invalid(page(world, **{"query": "x", **fields})) == named


async def test_what_is_not_there_is_not_found(world: World) -> None:
    nobody, nothing = new_id(Prefix.AGENT), new_id(Prefix.CONVERSATION)
    assert await not_found(page(world, "x", agent_id=nobody)) == ("agent", nobody)
    assert await not_found(page(world, "x", conversation_id=nothing)) == ("conversation", nothing)
