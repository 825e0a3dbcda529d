from __future__ import annotations

import queue
import threading

import pytest

from edgefed.transport.inbox import (
    OVERHEAD,
    URGENT_IN_A_ROW,
    Arrival,
    Inbox,
    InboxCounts,
    InboxLimits,
    Incoming,
    LinkDown,
    LinkUp,
    Subscribed,
)
from edgefed.wire.tensors import digest
from edgefed.wire.topics import Topics
from tests.coordinator.light_devices import HandClock
from tests.transport.listening import PATIENCE

TOPICS = Topics("inbox")
BLOB = digest(b"blob")


def message(topic: str, payload: bytes = b"") -> Incoming:
    return Incoming(topic, payload, retained=False)


def progress(device: str, payload: bytes = b"") -> Incoming:
    return message(TOPICS.progress(device), payload)


def telemetry(device: str, payload: bytes = b"") -> Incoming:
    return message(TOPICS.telemetry(device), payload)


def reply(device: str, payload: bytes = b"") -> Incoming:
    return message(TOPICS.reply(device), payload)


def chunk(number: int, payload: bytes = b"") -> Incoming:
    return message(TOPICS.up_chunk("d"), payload)


def cost(each: Incoming) -> int:
    return len(each.topic) + len(each.payload) + OVERHEAD


def filled(*arrivals: Arrival, limits: InboxLimits | None = None) -> Inbox[str]:
    inbox: Inbox[str] = Inbox(HandClock(), limits)
    for arrival in arrivals:
        inbox.put(arrival)
    return inbox


def rest(inbox: Inbox[str]) -> list[Arrival | str]:
    """Take everything out."""
    found = []
    while (item := inbox.get(0.0)) is not None:
        found.append(item)
    return found


@pytest.mark.parametrize(
    "topic",
    [
        TOPICS.birth("d"),
        TOPICS.reply("d"),
        TOPICS.up_need("d"),
        TOPICS.request("local/3"),
        TOPICS.coordinator(),
        TOPICS.task("d"),
        TOPICS.receipt("d"),
        TOPICS.cancel("d"),
        TOPICS.down_need("d"),
    ],
)
def test_what_is_awaited_overtakes_states_and_chunks(topic: str) -> None:
    states = [progress(f"d-{number}") for number in range(1000)]
    chunks = [chunk(number) for number in range(100)]
    awaited = message(topic)
    inbox = filled(*states, *chunks, awaited)
    assert inbox.get(0.0) == awaited


@pytest.mark.parametrize(
    "topic",
    [
        TOPICS.up_chunk("d"),
        TOPICS.down_chunk("d"),
        TOPICS.broadcast_chunk(BLOB),
    ],
)
def test_chunks_are_bounded_by_themselves(topic: str) -> None:
    limits = InboxLimits(chunks=2 * cost(message(topic)))
    inbox = filled(*(message(topic) for _ in range(5)), reply("d"), limits=limits)
    assert rest(inbox) == [reply("d"), message(topic), message(topic)]
    assert inbox.counts == InboxCounts(dropped_chunks=3)


def test_the_order_of_arrival_is_kept_within_a_queue() -> None:
    events: list[Arrival] = [
        LinkUp(),
        Subscribed("a"),
        reply("a"),
        reply("b", b"1"),
        reply("b", b"2"),
    ]
    chunks = [chunk(number) for number in range(5)]
    assert rest(filled(*events, *chunks)) == [*events, *chunks]


def test_only_the_latest_state_of_a_topic_is_kept_in_the_place_of_the_first() -> None:
    inbox = filled(
        progress("a", b"1"), progress("b", b"1"), telemetry("a", b"1"), progress("a", b"2")
    )
    assert inbox.counts == InboxCounts(replaced=1)
    assert rest(inbox) == [progress("a", b"2"), progress("b", b"1"), telemetry("a", b"1")]
    inbox.put(progress("a", b"3"))
    assert inbox.counts.replaced == 1, "the one before was handled"


def test_a_state_can_be_taken_before_its_turn_and_leaves_its_room() -> None:
    limits = InboxLimits(latest=2 * cost(progress("a")))
    inbox = filled(progress("a"), progress("b"), limits=limits)
    assert inbox.take_latest(TOPICS.progress("a")) == progress("a")
    assert inbox.take_latest(TOPICS.progress("a")) is None
    inbox.put(progress("c"))
    assert rest(inbox) == [progress("b"), progress("c")]


def test_no_queue_starves() -> None:
    """One of the others follows so many urgent ones, and they take turns."""
    count = 6 * (URGENT_IN_A_ROW + 1)
    inbox = filled(*(reply(f"d-{number}") for number in range(count)))
    for number in range(3):
        inbox.put(chunk(number))
        inbox.put(progress(f"d-{number}"))
    got = [inbox.get(0.0) for _ in range(count)]
    others = [n for n, each in enumerate(got) if not str(each).count("reply")]
    assert others == [(n + 1) * (URGENT_IN_A_ROW + 1) - 1 for n in range(6)]
    assert [got[n] for n in others] == [
        each for number in range(3) for each in (chunk(number), progress(f"d-{number}"))
    ]


def test_chunks_and_states_take_turns() -> None:
    inbox = filled(*(chunk(n) for n in range(3)), *(progress(f"d-{n}") for n in range(3)))
    kinds = ["chunk" if "/c'" in str(each) else "state" for each in rest(inbox)]
    assert kinds == ["chunk", "state"] * 3


def test_every_queue_is_bounded_and_what_it_does_not_take_is_counted() -> None:
    one = InboxLimits(cost(reply("a")), cost(chunk(1)), cost(progress("a")))
    inbox = filled(
        *(reply("a"), reply("b"), chunk(1), chunk(2), chunk(3)),
        *(progress("a"), progress("b"), progress("c"), progress("d")),
        limits=one,
    )
    assert inbox.counts == InboxCounts(1, 2, 3, 0)
    assert inbox.counts.dropped == 6
    assert rest(inbox) == [reply("a"), chunk(1), progress("a")]


def test_there_is_room_again_for_what_was_got() -> None:
    limits = InboxLimits(cost(reply("a")), cost(chunk(1)), cost(progress("a", b"12")))
    inbox = filled(limits=limits)
    for _ in range(3):
        for each in (reply("a"), chunk(1), progress("a"), progress("a", b"12")):
            inbox.put(each)
        assert rest(inbox) == [reply("a"), chunk(1), progress("a", b"12")]
    assert inbox.counts.dropped == 0


def test_a_state_too_large_for_its_place_leaves_the_older_one() -> None:
    inbox = filled(limits=InboxLimits(latest=cost(progress("a", b"1"))))
    inbox.put(progress("a", b"1"))
    inbox.put(progress("a", b"22"))
    assert inbox.counts == InboxCounts(dropped_latest=1)
    assert rest(inbox) == [progress("a", b"1")]


def test_link_events_and_the_owners_own_are_never_dropped() -> None:
    inbox = filled(limits=InboxLimits(0, 0, 0))
    events: list[Arrival] = [LinkUp(), Subscribed("a"), LinkDown("gone"), LinkUp()]
    for event in events:
        inbox.put(event)
    inbox.post("done")
    inbox.put(reply("a"))
    assert rest(inbox) == [*events, "done"]
    assert inbox.counts == InboxCounts(dropped_urgent=1)


def test_states_and_chunks_do_not_outlive_their_connection() -> None:
    """After a link event they would count as news of devices that may be gone."""
    limits = InboxLimits(chunks=cost(chunk(1)), latest=cost(progress("a")))
    inbox = filled(reply("a"), progress("a"), chunk(1), LinkDown("gone"), limits=limits)
    for each in (LinkUp(), progress("b"), chunk(2)):
        inbox.put(each)
    assert rest(inbox) == [reply("a"), LinkDown("gone"), LinkUp(), chunk(2), progress("b")]
    assert inbox.counts.dropped == 0


def test_it_tells_until_when_everything_was_handled() -> None:
    clock = HandClock()
    inbox: Inbox[str] = Inbox(clock)
    begin = clock.seconds
    clock.seconds = begin + 1
    assert inbox.handled_until() == begin + 1
    inbox.put(progress("a", b"1"))
    clock.seconds = begin + 2
    inbox.put(reply("a"))
    inbox.put(progress("a", b"2"))
    clock.seconds = begin + 3
    assert inbox.handled_until() == begin + 1
    assert inbox.get(0.0) == reply("a")
    assert inbox.arrived == begin + 2
    assert inbox.handled_until() == begin + 1
    inbox.get(0.0)
    assert inbox.handled_until() == begin + 3
    inbox.put(chunk(1))
    clock.seconds = begin + 4
    assert inbox.handled_until() == begin + 4
    inbox.post("done")
    clock.seconds = begin + 5
    assert inbox.handled_until() == begin + 4


def test_whoever_waits_is_woken() -> None:
    inbox = filled()
    got: queue.SimpleQueue[Arrival | str | None] = queue.SimpleQueue()
    arrivals: list[Arrival] = [LinkUp(), chunk(1), progress("a")]

    def take() -> None:
        for _ in range(len(arrivals) + 1):
            got.put(inbox.get(PATIENCE))

    waiting = threading.Thread(target=take)
    waiting.start()
    for each in arrivals:
        inbox.put(each)
        assert got.get(timeout=PATIENCE) == each
    inbox.post("done")
    assert got.get(timeout=PATIENCE) == "done"
    waiting.join(PATIENCE)


def test_what_repeats_the_last_that_waits_of_its_topic_is_taken_once() -> None:
    once, other = reply("a", b"1"), reply("a", b"2")
    inbox = filled(once, once, once, other, once, reply("b", b"1"))
    assert inbox.counts.duplicates == 2
    assert rest(inbox) == [once, other, once, reply("b", b"1")], "order is kept"
    inbox.put(once)
    assert rest(inbox) == [once], "the one before was handled"


def test_a_message_after_a_link_event_is_no_repetition() -> None:
    inbox = filled(reply("a"), LinkDown("gone"), LinkUp(), reply("a"))
    assert rest(inbox) == [reply("a"), LinkDown("gone"), LinkUp(), reply("a")]


def test_a_repetition_does_not_take_room() -> None:
    inbox = filled(limits=InboxLimits(urgent=cost(reply("a"))))
    for _ in range(100):
        inbox.put(reply("a"))
    assert inbox.counts == InboxCounts(duplicates=99)


class _Doorkeeper:
    """Refuses what a device called flood sends."""

    def __init__(self) -> None:
        self.count = 0

    def admit(self, message: Incoming) -> bool:
        self.count += "flood" in message.topic
        return "flood" not in message.topic

    def refused(self) -> dict[str, int]:
        return {"flood": self.count}


def test_what_the_gate_refuses_is_not_taken_and_link_events_are_not_asked_about() -> None:
    inbox: Inbox[str] = Inbox(HandClock(), gate=_Doorkeeper())
    for each in (reply("flood"), LinkUp(), progress("flood"), reply("a")):
        inbox.put(each)
    assert rest(inbox) == [LinkUp(), reply("a")]
    assert inbox.counts == InboxCounts(refused={"flood": 2})
