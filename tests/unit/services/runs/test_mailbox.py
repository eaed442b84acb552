"""The mailbox: one order, bounded, and nobody waits for the dead."""

import asyncio

import pytest

from services.runs.mailbox import Mailbox, MailboxClosed, MailboxFull


async def test_messages_come_in_the_order_they_were_left() -> None:
    box: Mailbox[int] = Mailbox(10)
    for number in range(3):
        box.post(number)
    assert [(await box.get()).message for _ in range(3)] == [0, 1, 2]


async def test_a_full_mailbox_refuses_and_put_waits_for_room() -> None:
    box: Mailbox[int] = Mailbox(1)
    box.post(1)
    with pytest.raises(MailboxFull):
        box.post(2)
    waiting = asyncio.ensure_future(box.put(2))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert (await box.get()).message == 1
    await waiting
    assert (await box.get()).message == 2


async def test_an_answer_reaches_whoever_asked() -> None:
    box: Mailbox[str] = Mailbox(1)
    asked = asyncio.ensure_future(box.ask("?"))
    (await box.get()).answer("!")
    assert await asked == "!"


async def test_everybody_who_waits_is_told_when_the_reader_dies() -> None:
    box: Mailbox[str] = Mailbox(1)
    asked = asyncio.ensure_future(box.ask("?"))
    await asyncio.sleep(0)
    blocked = asyncio.ensure_future(box.put("more"))
    await asyncio.sleep(0)
    box.close()
    for task in (asked, blocked):
        with pytest.raises(MailboxClosed):
            await task
    with pytest.raises(MailboxClosed):
        box.post("late")


async def test_an_answer_to_somebody_who_left_is_dropped() -> None:
    box: Mailbox[str] = Mailbox(1)
    asked = asyncio.ensure_future(box.ask("?"))
    envelope = await box.get()
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    envelope.answer("!")
    assert asked.cancelled()
