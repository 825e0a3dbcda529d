"""The held part of the event log: no entry is missing, twice or in the wrong place."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from edgefed.events.base.event_entries import EventEntry, EventFilter, EventPage
from edgefed.tui.state import event_window
from edgefed.tui.state.event_window import EventRead, EventWindow


def entry(position: int) -> EventEntry:
    """An entry; every third one is a problem."""
    problem = position % 3 == 0
    return EventEntry(position=position, time="", kind="note", text="x", problem=problem)


class Source:
    """A log of numbered entries that grows, with pages of 10 entries."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.reads = 0

    def read(self, window: EventWindow, read: EventRead | None) -> bool:
        """Read a page into a window; return whether there was one to read."""
        if read is None:
            return False
        self.reads += 1
        before = self.count if read.before is None else read.before
        if read.after is None:
            places: Sequence[int] = range(before - 1, -1, -1)
        else:
            places = range(read.after, self.count)
        found: list[EventEntry] = []
        following = None
        for place in places:
            if read.wanted.matches(entry(place)):
                found.append(entry(place))
            if len(found) == 10:
                following = place if read.after is None else place + 1
                break
        window.take(read, EventPage(entries=tuple(found), next=following, end=self.count))
        return True


def numbers(window: EventWindow) -> list[int]:
    return [row.position for row in window.rows]


def ordered(count: int, *, problems_first: bool) -> list[int]:
    """All entries as they are shown."""
    whole = range(count - 1, -1, -1)
    if not problems_first:
        return list(whole)
    return sorted(whole, key=lambda place: place % 3 != 0)


@pytest.mark.parametrize("problems_first", [True, False])
def test_the_whole_log_is_read_from_the_top_and_from_the_end(problems_first: bool) -> None:
    source = Source(95)
    window = EventWindow(EventFilter(), problems_first=problems_first)
    while source.read(window, window.older()):
        pass
    assert numbers(window) == ordered(95, problems_first=problems_first)
    assert (window.whole, window.at_top) == (True, True)
    assert source.reads == (11 if problems_first else 10)
    window = EventWindow(EventFilter(), problems_first=problems_first)
    window.jump_to_end()
    assert (window.whole, window.at_top) == (True, False)
    source.read(window, window.newer())
    assert numbers(window) == ordered(95, problems_first=problems_first)[-10:]
    while source.read(window, window.newer()):
        pass
    assert numbers(window) == ordered(95, problems_first=problems_first)


@pytest.mark.parametrize("problems_first", [True, False])
def test_entries_far_from_the_cursor_are_dropped_and_read_again(
    monkeypatch: pytest.MonkeyPatch, problems_first: bool
) -> None:
    monkeypatch.setattr(event_window, "MOST", 25)
    source, order = Source(95), ordered(95, problems_first=problems_first)
    window = EventWindow(EventFilter(), problems_first=problems_first)
    held: list[int] = []
    while source.read(window, window.older()):
        held = numbers(window)
        assert len(held) <= 25
        at = order.index(held[0])
        assert held == order[at : at + len(held)]
    assert held[-1] == order[-1]
    assert not window.at_top
    while source.read(window, window.newer()):
        held = numbers(window)
        assert len(held) <= 25
        at = order.index(held[0])
        assert held == order[at : at + len(held)]
    assert held[0] == order[0]
    assert (window.whole, window.at_top) == (False, True)


@pytest.mark.parametrize("problems_first", [True, False])
@pytest.mark.parametrize("pages", [0, 1, 2, 4, 5, 7, 99])
def test_new_entries_go_where_they_belong(problems_first: bool, pages: int) -> None:
    source = Source(95)
    window = EventWindow(EventFilter(), problems_first=problems_first)
    assert window.fresh() is None
    for _ in range(1 + pages):
        source.read(window, window.older())
    for _ in range(15):  # more than one page of fresh ones
        source.count += 2
        source.read(window, window.fresh())
    while source.read(window, window.fresh()) and window._end != source.count:
        pass
    order = ordered(source.count, problems_first=problems_first)
    held = numbers(window)
    assert held == order[: len(held)]
    while source.read(window, window.older()):
        pass
    assert numbers(window) == order


def test_entries_that_come_between_two_pages_are_not_doubled() -> None:
    source = Source(20)
    window = EventWindow(EventFilter(), problems_first=True)
    source.read(window, window.older())
    source.count += 7
    while source.read(window, window.older()):
        pass
    source.read(window, window.fresh())
    assert numbers(window) == ordered(27, problems_first=True)


def test_entries_that_come_while_the_log_is_read_upwards_are_not_doubled() -> None:
    source = Source(35)
    window = EventWindow(EventFilter(), problems_first=False)
    window.jump_to_end()
    source.read(window, window.newer())
    source.count += 3
    while source.read(window, window.newer()):
        pass
    source.read(window, window.fresh())
    assert numbers(window) == ordered(38, problems_first=False)


def test_a_filter_that_wants_problems_alone_has_them_alone() -> None:
    source = Source(30)
    window = EventWindow(EventFilter(problems=True), problems_first=False)
    while source.read(window, window.older()):
        pass
    assert numbers(window) == [place for place in range(29, -1, -1) if place % 3 == 0]
