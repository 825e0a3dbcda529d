from __future__ import annotations

import pytest

from edgefed.coordinator.devices.sender_limits import RetainedMessages
from edgefed.transport.inbox import Arrival, Incoming, LinkUp
from edgefed.wire.topics import Topics

TOPICS = Topics("lab")


def taken(arrival: Arrival) -> tuple[list[str], list[Arrival]]:
    """Return the topics that were cleared, and what was passed on."""
    cleared, passed = list[str](), list[Arrival]()
    gate = RetainedMessages(TOPICS, {"cam-1"}.__contains__, cleared.append, passed.append)
    gate.take(arrival)
    return cleared, passed


@pytest.mark.parametrize(
    "topic",
    [
        TOPICS.reply("cam-1"),
        TOPICS.up_chunk("cam-1"),
        TOPICS.birth("cam-2"),
        TOPICS.request("viewer.vi/3"),
        f"{TOPICS.root}/up/cam-1/nonsense",
    ],
)
def test_what_nobody_should_retain_is_deleted_and_passed_on(topic: str) -> None:
    retained = Incoming(topic, b"kept", retained=True)
    assert taken(retained) == ([topic], [retained])
    live = Incoming(topic, b"said", retained=False)
    assert taken(live) == ([], [live])


@pytest.mark.parametrize("topic", [TOPICS.birth("cam-1"), TOPICS.coordinator()])
def test_presence_stays(topic: str) -> None:
    retained = Incoming(topic, b"kept", retained=True)
    assert taken(retained) == ([], [retained])


def test_deletions_are_not_passed_on_and_the_link_is() -> None:
    assert taken(Incoming(TOPICS.reply("cam-1"), b"", retained=False)) == ([], [])
    assert taken(LinkUp()) == ([], [LinkUp()])
