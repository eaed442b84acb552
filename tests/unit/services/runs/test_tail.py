"""The tail of a live run: what is shown, when, and what happens to the numbers."""

from hypothesis import given
from hypothesis import strategies as st

from common.clock import ManualClock
from services.runs.events import Entry, RunStarted, TextDelta
from services.runs.log import Tail


def delta(text: str) -> TextDelta:
    return TextDelta("message-1", 0, text)


def tail(after: int = 0) -> Tail:
    made = Tail(after, ManualClock(), lambda: None)
    made.reserved = after + 1000
    return made


def shown(found: list[Entry] | None) -> list[int]:
    assert found is not None
    return [entry.seq for entry in found]


def commit(log: Tail, count: int) -> list[Entry]:
    _, first = log.stage(count)
    clock = ManualClock()
    entries = [Entry(first + offset, clock.now(), RunStarted()) for offset in range(count)]
    log.publish(entries, entries[-1].seq + 1000)
    return entries


def test_deltas_are_shown_at_once() -> None:
    log = tail()
    log.append(delta("a"))
    assert shown(log.read(0)) == [1]


def test_nothing_is_shown_past_a_commit_that_is_not_done() -> None:
    log = tail()
    log.append(delta("a"))
    _, first = log.stage(2)
    log.append(delta("late"))
    assert shown(log.read(0)) == [1]
    clock = ManualClock()
    log.publish([Entry(first, clock.now(), RunStarted()), Entry(first + 1, clock.now(), RunStarted())], 5000)
    assert shown(log.read(0)) == [1, 2, 3, 4]
    assert isinstance((log.read(3) or [])[0].event, TextDelta)


def test_a_refused_commit_gives_its_numbers_back() -> None:
    log = tail()
    _, first = log.stage(3)
    log.unstage(first, 3)
    log.append(delta("a"))
    assert shown(log.read(0)) == [1]


def test_numbers_that_others_stand_behind_are_not_given_back() -> None:
    log = tail()
    _, first = log.stage(3)
    log.append(delta("late"))
    log.unstage(first, 3)
    log.append(delta("later"))
    assert shown(log.read(0)) == [4, 5]


def test_a_commit_takes_the_deltas_before_it_along() -> None:
    log = tail()
    log.append(delta("a"))
    commit(log, 1)
    log.append(delta("b"))
    live, first = log.stage(1)
    assert [entry.seq for entry in live] == [3]
    assert first == 4


def test_it_is_full_when_the_reserved_numbers_are_used_up() -> None:
    log = tail()
    log.reserved = 2
    fullness = []
    for text in "ab":
        log.append(delta(text))
        fullness.append(log.full)
    log.flushed(2, 100)
    assert [*fullness, log.full] == [False, True, False]


def test_a_reader_from_before_the_tail_is_sent_to_the_database() -> None:
    log = tail(after=10)
    assert log.read(9) is None
    assert shown(log.read(10)) == []


def test_memory_is_bounded_once_things_are_durable() -> None:
    log = tail()
    log.reserved = 10_000
    for number in range(5000):
        log.append(delta(str(number)))
    log.flushed(5000, 10_000)
    assert log.read(0) is None
    assert len(log.read(4700) or []) == 300


@given(st.lists(st.sampled_from(["delta", "commit", "refused", "flush"]), max_size=60))
def test_readers_see_strictly_increasing_numbers_and_miss_nothing(actions: list[str]) -> None:
    log, cursor, seen, written = tail(), 0, list[int](), 0
    for action in actions:
        if action == "delta":
            log.append(delta("x"))
            written += 1
        elif action == "commit":
            commit(log, 2)
            written += 2
        elif action == "refused":
            _, first = log.stage(2)
            log.unstage(first, 2)
        else:
            durable = log.undurable()
            if durable:
                log.flushed(durable[-1].seq, durable[-1].seq + 1000)
        found = shown(log.read(cursor))
        seen += found
        cursor = seen[-1] if seen else 0
    assert seen == sorted(set(seen))
    assert len(seen) == written
