"""However the bytes are cut, a client understands the same."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.fakellm.scripts import Answer, Api, Call, Say, Wire, say
from tests.helpers.fakellm import FakeLlm, fake_llm
from tests.unit.services.fakellm.clients import Ask, client_of
from tests.unit.services.fakellm.raw import body, chunks, encoded, events, exchange, post

PARTS = (Say("grüße 你好 \U0001f600 world"), Call("a_tool", {"x": "ä"}, "id1"), Call("b_tool", {}, "id2"))


async def cut(fake: FakeLlm, api: Api, wire: Wire) -> list[bytes]:
    """The HTTP chunks of a stream."""
    fake.will(Answer(parts=PARTS, wire=wire))
    answer = await exchange(fake, encoded(api, body(api, stream=True), "connection: close"))
    return chunks(answer.partition(b"\r\n\r\n")[2])


async def test_an_event_is_a_chunk(fake: FakeLlm, api: Api) -> None:
    for chunk in await cut(fake, api, Wire()):
        assert len(events(chunk)) == 1


async def test_several_events_in_a_chunk(fake: FakeLlm, api: Api) -> None:
    sizes = [len(events(chunk)) for chunk in await cut(fake, api, Wire(events_per_chunk=3))]
    assert set(sizes[:-1]) == {3}


async def test_chunks_of_given_sizes(fake: FakeLlm, api: Api) -> None:
    sizes = [len(chunk) for chunk in await cut(fake, api, Wire(sizes=(1, 70, 3)))]
    assert all(size == (1, 70, 3)[number % 3] for number, size in enumerate(sizes[:-1]))


async def test_lines_that_end_as_on_windows(fake: FakeLlm, api: Api, ask: Ask) -> None:
    fake.will(say("one two", wire=Wire(crlf=True)))
    _, data = await post(fake, api, body(api, stream=True))
    assert data.count(b"\r\n") == data.count(b"\n")
    fake.will(say("one two", wire=Wire(crlf=True)))
    assert (await ask("hi", stream=True)).text == "one two"


async def test_pings(fake: FakeLlm, api: Api, ask: Ask) -> None:
    wire = Wire(ping_every=1)
    fake.will(say("one two three", wire=wire))
    _, data = await post(fake, api, body(api, stream=True))
    assert data.count(b"event: ping" if api is Api.MESSAGES else b": keep-alive") >= 3
    fake.will(say("one two three", wire=wire))
    assert (await ask("hi", stream=True)).text == "one two three"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(1, 90), min_size=1, max_size=6), crlf=st.booleans())
async def test_any_sizes_give_the_same_turn(api: Api, sizes: list[int], crlf: bool) -> None:
    async with fake_llm() as fake, client_of(api, fake) as ask:
        fake.will(Answer(parts=PARTS), Answer(parts=PARTS, wire=Wire(sizes=tuple(sizes), crlf=crlf)))
        plain, odd = await ask("hi", stream=True), await ask("hi", stream=True)
        assert plain == odd
        assert plain.text == PARTS[0].text


async def test_a_long_answer(fake: FakeLlm, api: Api) -> None:
    fake.will(say(tokens=3_000))
    _, data = await post(fake, api, body(api, stream=True))
    assert b"3000 " in data
    assert fake.requests[0].bytes_sent == len(data)
