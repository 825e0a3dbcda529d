"""Events about messages that the coordinator did not take name who sent them."""

from __future__ import annotations

from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.coordinator.journal.rate_limited_notes import (
    LOOK_EVERY,
    MAX_KINDS,
    MOST_NAMED,
    WARN_EVERY,
    OverflowNotes,
    RateLimitedNotes,
)
from edgefed.transport.inbox import InboxCounts
from tests.coordinator.light_devices import HandClock


class Scene:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.told: list[str] = []
        journal = EventJournal("notes", self.clock)
        journal.listen(lambda event, number: self.told.append(event.fields["text"]))
        self.notes = RateLimitedNotes(journal, self.clock)
        self.counts = InboxCounts()
        self.overflow = OverflowNotes(lambda: self.counts, self.notes)

    def look(self, seconds: float = LOOK_EVERY) -> list[str]:
        """Return what is told when so much time has passed."""
        self.told.clear()
        self.clock.seconds += seconds
        self.overflow.due(self.clock.monotonic())
        return list(self.told)


def test_the_largest_senders_are_named_once_a_minute() -> None:
    scene = Scene()
    assert scene.look() == []
    scene.counts = InboxCounts(refused={f"device d-{n}": 90 - n for n in range(10)})
    assert scene.look(LOOK_EVERY / 2) == []
    told = scene.look()
    assert len(told) == MOST_NAMED
    assert told[0].endswith("messages over the limit of device d-0 were not read: 90")
    scene.counts = InboxCounts(refused={"device d-0": 99})
    assert scene.look() == []
    assert len(scene.look(WARN_EVERY)) == 1
    assert scene.look(WARN_EVERY) == [], "nothing more has come"


def test_dropped_messages_are_told_with_those_over_a_limit() -> None:
    scene = Scene()
    scene.counts = InboxCounts(dropped_urgent=3, refused={"new devices": 1})
    assert ["too fast: 3" in text for text in scene.look()] == [True, False]


def test_kinds_beyond_the_limit_are_told_when_others_are_forgotten() -> None:
    scene = Scene()
    assert all(scene.notes.warn(f"s-{n}", "x", "text") for n in range(MAX_KINDS))
    assert not scene.notes.warn("one more", "x", "text")
    scene.clock.seconds += WARN_EVERY
    assert scene.notes.warn("one more", "x", "text")
