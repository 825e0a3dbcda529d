"""Pages of the event log of a recording, as the coordinator has them of its own."""

from __future__ import annotations

from collections.abc import Iterator

from edgefed.events.base.event_entries import PAGE, EventEntry, EventFilter, EventPage
from edgefed.events.base.model import Event
from edgefed.events.history.recording import UNREADABLE, Recording
from edgefed.events.state.lines import entry_of

CHUNK = 500
"""Events that are read at a time."""

MOST_READ = 20_000
"""Events that are read for a page; a reader continues where it ended."""


def recorded_page(
    recording: Recording,
    done: int,
    wanted: EventFilter,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = PAGE,
) -> EventPage:
    """Return the entries before a position, newest first, or from one on, oldest first.

    Args:
        recording: the events; the position of one is its number.
        done: number of events that have happened so far.
        wanted: selects entries.
        before: a position; None for the last event so far.
        after: a position from which to read on; None to read backwards.
        limit: most entries; there may be fewer although the recording goes on.

    Raises:
        StorageError: the recording cannot be read.
    """
    entries: list[EventEntry] = []
    if after is None:
        numbers = _backwards(recording, done if before is None else min(before, done))
    else:
        numbers = _forwards(recording, after, done)
    for read, (number, event) in enumerate(numbers, 1):
        entry = _entry(event, number)
        if entry is not None and wanted.matches(entry):
            entries.append(entry)
        if len(entries) >= limit or read >= MOST_READ:
            following = number if after is None else number + 1
            return EventPage(entries=tuple(entries), next=following, end=done)
    return EventPage(entries=tuple(entries), end=done)


def _backwards(recording: Recording, before: int) -> Iterator[tuple[int, Event | None]]:
    for end in range(before, 0, -CHUNK):
        start = max(0, end - CHUNK)
        events = list(recording.events(start, end))
        yield from zip(range(end - 1, start - 1, -1), reversed(events), strict=True)


def _forwards(recording: Recording, after: int, done: int) -> Iterator[tuple[int, Event | None]]:
    yield from enumerate(recording.events(after, done), after)


def _entry(event: Event | None, number: int) -> EventEntry | None:
    """Return the entry of an event; None for one that the file no longer has."""
    try:
        entry = None if event is None else entry_of(event)
    except UNREADABLE:
        return None
    return None if entry is None else entry.model_copy(update={"position": number})
