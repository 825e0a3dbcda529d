"""The part of the event log that a screen holds: it grows by pages where the user scrolls.

With problems first, the log is two sections, each newest first: problems, then all other entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgefed.events.base.event_entries import EventEntry, EventFilter, EventPage

MOST = 2000
"""Entries that are held; those furthest from the cursor are read again when they are needed."""


@dataclass(frozen=True)
class EventRead:
    """A page to read, and where its entries belong.

    Attributes:
        section: number of the section; -1 for the entries that are new in any.
        wanted: selects entries.
        before, after: positions, as in ``Events``.
    """

    section: int
    wanted: EventFilter
    before: int | None = None
    after: int | None = None


class EventWindow:
    """Entries of a log from top to bottom, without a gap.

    Args:
        wanted: selects entries.
        problems_first: whether problems come before all other entries.

    Attributes:
        rows: the entries.
    """

    def __init__(self, wanted: EventFilter, *, problems_first: bool) -> None:
        self.rows: list[EventEntry] = []
        problems = (True, False) if problems_first else (None,)
        self._sections = tuple(_with_problems(wanted, problem) for problem in problems)
        self._wanted = wanted
        self._older: tuple[int, int | None] | None = (0, None)
        self._newer: tuple[int, int] | None = None
        self._end: int | None = None

    @property
    def whole(self) -> bool:
        """Whether the log's last entry is held."""
        return self._older is None

    @property
    def at_top(self) -> bool:
        """Whether the log's first entry is held."""
        return self._newer is None

    def older(self) -> EventRead | None:
        """Return the read of the next entries at the bottom; None if there are none."""
        if self._older is None:
            return None
        section, before = self._older
        before = self._end if before is None else before  # later entries are read as fresh ones
        return EventRead(section, self._sections[section], before=before)

    def newer(self) -> EventRead | None:
        """Return the read of the next entries at the top; None if there are none."""
        if self._newer is None:
            return None
        section, after = self._newer
        return EventRead(section, self._sections[section], after=after)

    def fresh(self) -> EventRead | None:
        """Return the read of entries that the log got since the last read; None before one."""
        return None if self._end is None else EventRead(-1, self._wanted, after=self._end)

    def jump_to_end(self) -> None:
        """Begin at the bottom."""
        self.rows, self._older = [], None
        self._newer = (len(self._sections) - 1, 0)

    def take(self, read: EventRead, page: EventPage) -> None:
        """Put the entries of a page into their places."""
        if read.section < 0:
            self._take_fresh(page)
            return
        end = self._end = page.end if self._end is None else self._end
        if read.after is None:
            self.rows += page.entries
            self._older = self._next(read.section, page.next, None, 1)
            self._cut_top()
        else:
            self.rows[:0] = reversed([entry for entry in page.entries if entry.position < end])
            above = self._next(read.section, page.next, 0, -1)
            self._newer = None if above is None else (above[0], above[1] or 0)
            self._cut_bottom()

    def _next(
        self, section: int, following: int | None, begin: int | None, step: int
    ) -> tuple[int, int | None] | None:
        """Return where to read on: in a section, at the beginning of the next one, or nowhere."""
        if following is not None:
            return section, following
        section += step
        return (section, begin) if 0 <= section < len(self._sections) else None

    def _take_fresh(self, page: EventPage) -> None:
        self._end = page.end if page.next is None else page.next
        for entry in page.entries:
            place = self._place(entry)
            if place is not None:
                self.rows.insert(place, entry)
        self._cut_bottom()

    def _place(self, entry: EventEntry) -> int | None:
        """Return where a new entry belongs; None where the window does not reach."""
        if self._section(entry) == 0:
            return 0 if self._newer is None else None
        sections = [self._section(row) for row in self.rows]
        if 1 in sections:
            first = sections.index(1)
            return first if first > 0 or self._newer is None else None
        older = self._older
        is_read = older is None or (older[0] == 1 and older[1] is not None)
        return len(self.rows) if is_read and self._newer is None else None

    def _section(self, entry: EventEntry) -> int:
        return 0 if entry.problem or len(self._sections) == 1 else 1

    def _cut_top(self) -> None:
        if len(self.rows) > MOST:
            del self.rows[: len(self.rows) - MOST]
            first = self.rows[0]
            self._newer = (self._section(first), first.position + 1)

    def _cut_bottom(self) -> None:
        if len(self.rows) > MOST:
            del self.rows[MOST:]
            last = self.rows[-1]
            self._older = (self._section(last), last.position)


def _with_problems(wanted: EventFilter, problems: bool | None) -> EventFilter:
    """Return a filter that also selects problems, or no problems, or both."""
    return wanted if problems is None else wanted.model_copy(update={"problems": problems})


def place_of(rows: Sequence[EventEntry], position: int) -> int | None:
    """Return the place of an entry; None if it is not among the rows."""
    places = (place for place, row in enumerate(rows) if row.position == position)
    return next(places, None)
