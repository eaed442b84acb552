"""What breaks on the way, on real sockets, and what is written down about it."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import anthropic
import openai
import pytest

from services.fakellm.record import Ended
from services.fakellm.scripts import Answer, Api, Call, Failure, Fault, FaultKind, Say, say
from tests.helpers.fakellm import FakeLlm
from tests.unit.services.fakellm.clients import Ask
from tests.unit.services.fakellm.raw import body, chunks, encoded, events, post

TEN = "w0 w1 w2 w3 w4 w5 w6 w7 w8 w9"


@asynccontextmanager
async def asking(fake: FakeLlm, api: Api) -> AsyncIterator[asyncio.StreamReader]:
    """A connection on which a streamed answer was asked for; the end of the block hangs up."""
    host, _, port = fake.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(encoded(api, body(api, stream=True)))
        yield reader
    finally:
        writer.close()
        with suppress(ConnectionResetError):
            await writer.wait_closed()


async def everything(reader: asyncio.StreamReader) -> tuple[bytes, bool]:
    """All bytes that come, and whether the connection was reset."""
    got = b""
    try:
        while data := await reader.read(65536):
            got += data
    except ConnectionResetError:
        return got, True
    return got, False


def tokens(data: bytes) -> int:
    """How many of the ten words came, each as a piece of its own."""
    return len(re.findall(rb'"w\d ?"', data))


async def test_a_reset_after_some_tokens(fake: FakeLlm, api: Api) -> None:
    fake.will(say(TEN, fault=Fault(FaultKind.RESET, after=3)))
    async with asking(fake, api) as reader:
        got, reset = await everything(reader)
    assert reset
    assert got.startswith(b"HTTP/1.1 200")
    assert tokens(got) == 3
    [exchange] = fake.requests
    assert (await exchange.wait_end(), exchange.tokens_sent) == (Ended.RESET, 3)


async def test_a_cut_is_not_a_reset_and_has_no_last_chunk(fake: FakeLlm, api: Api) -> None:
    fake.will(say(TEN, fault=Fault(FaultKind.CUT, after=4, partial=True)))
    async with asking(fake, api) as reader:
        got, reset = await everything(reader)
    assert not reset
    assert tokens(got) == 4
    assert not got.endswith(b"0\r\n\r\n")
    # The half event is there, and it is no event.
    assert not chunks(got.partition(b"\r\n\r\n")[2])[-1].endswith(b"\n\n")
    assert await fake.requests[0].wait_end() is Ended.CUT


@pytest.mark.parametrize("fault", [Fault(FaultKind.RESET, after=2), Fault(FaultKind.CUT, after=2)])
@pytest.mark.parametrize("stream", [True, False])
async def test_the_sdks_call_it_a_connection_error(fake: FakeLlm, ask: Ask, fault: Fault, stream: bool) -> None:
    fake.will(say(TEN, fault=fault))
    with pytest.raises(Exception) as caught:  # noqa: PT011 - each SDK and its HTTP library have a class of their own
        await ask("hi", stream=stream)
    assert not isinstance(caught.value, openai.APIStatusError | anthropic.APIStatusError | AssertionError)
    assert (await ask("hi again", stream=stream)).text == "You said: hi again"


async def test_a_reset_before_any_answer(fake: FakeLlm, api: Api) -> None:
    fake.will(say(TEN, fault=Fault(FaultKind.RESET, headers=False)))
    async with asking(fake, api) as reader:
        assert await everything(reader) == (b"", True)
    assert fake.requests[0].status is None


async def for_a_while(reader: asyncio.StreamReader, seconds: float) -> bytes:
    """What comes in this time; fails if the connection ends before that."""
    got = b""
    try:
        async with asyncio.timeout(seconds):
            while data := await reader.read(65536):
                got += data
    except TimeoutError:
        return got
    raise AssertionError("the connection ended")


@pytest.mark.parametrize(("after", "sent"), [(0, 0), (3, 3), (10, 10), (99, 10)])
async def test_a_stall_until_the_client_hangs_up(fake: FakeLlm, api: Api, after: int, sent: int) -> None:
    fake.will(say(TEN, fault=Fault(FaultKind.STALL, after=after)))
    async with asking(fake, api) as reader:
        await reader.readuntil(b"\r\n\r\n")
        assert tokens(await for_a_while(reader, 0.1)) == sent
        [exchange] = fake.requests
        assert exchange.ended is None
    before = time.monotonic()
    assert await exchange.wait_end() is Ended.CLIENT_CLOSED
    assert time.monotonic() - before < 1.0
    assert exchange.tokens_sent == sent


async def test_a_stall_before_any_answer(fake: FakeLlm, ask: Ask) -> None:
    fake.will(say(fault=Fault(FaultKind.STALL, headers=False)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await ask("hi", stream=True)
    [exchange] = fake.requests
    assert await exchange.wait_end() is Ended.CLIENT_CLOSED
    assert (exchange.status, exchange.bytes_sent) == (None, 0)


async def test_a_stream_without_its_end(fake: FakeLlm, api: Api) -> None:
    fake.will(say(TEN, fault=Fault(FaultKind.END, after=-1)))
    _, data = await post(fake, api, body(api, stream=True))
    assert tokens(data) == 10
    last, _ = events(data)[-1]
    ends = {Api.CHAT: "", Api.RESPONSES: "response.output_item.done", Api.MESSAGES: "message_delta"}
    assert last == ends[api]
    assert b"[DONE]" not in data
    assert fake.requests[0].ended is Ended.COMPLETED


async def test_a_stream_that_ends_early(fake: FakeLlm, api: Api) -> None:
    fake.will(Answer(parts=(Say("I will."), Call("a", {"x": 1})), fault=Fault(FaultKind.END, after=3)))
    _, data = await post(fake, api, body(api, stream=True))
    assert b'{\\"x' in data
    assert b'\\":1}' not in data


@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_on_the_way(fake: FakeLlm, api: Api, ask: Ask, stream: bool) -> None:
    fake.will(say(TEN, fault=Fault(FaultKind.ERROR, after=2, failure=Failure(500, message="fell over"))))
    if stream and api is Api.RESPONSES:
        # Its accumulator hands the event on; there is no response to read.
        with pytest.raises(AttributeError):
            await ask("hi", stream=True)
        return
    with pytest.raises((openai.APIError, anthropic.APIError), match="fell over"):
        await ask("hi", stream=stream)


async def test_delays(fake: FakeLlm, api: Api) -> None:
    fake.will(say("w0 w1 w2", first_delay=0.1, token_delay=0.1))
    loop = asyncio.get_running_loop()
    async with asking(fake, api) as reader:
        started, got = loop.time(), b""
        arrivals: list[float] = []
        while len(arrivals) < 3:
            got += await reader.read(65536)
            arrivals += [loop.time() - started] * (tokens(got) - len(arrivals))
    # A machine may be slow; a delay may not be short.
    assert [arrival >= least for arrival, least in zip(arrivals, (0.09, 0.19, 0.29), strict=True)] == [True] * 3


async def test_delays_of_a_whole_answer(fake: FakeLlm, ask: Ask) -> None:
    fake.will(say("a b c", first_delay=0.05, token_delay=0.02))
    await ask("hi", stream=False)
    assert fake.requests[0].seconds >= 0.09
