"""The event log: a row for each entry, and the whole text of the one under the cursor."""

from __future__ import annotations

from textwrap import wrap
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.binding import BindingType
from textual.message import Message

from edgefed.events.base.event_entries import EventEntry, EventFilter
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.symbols import MARK_COLOURS, Glyphs
from edgefed.tui.look.text_format import clean, cut, moment
from edgefed.tui.look.theme import MUTED
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.panes.base.rows import WHEEL_ROWS
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.event_window import EventWindow, place_of

_DETAIL = 4
"""Lines about the entry under the cursor, the first one empty."""

_WITH_WORD = 100
"""Columns from which a row has the word for the entry's kind."""

_WORD = 11

_HINTS = ("events.search", "events.order", "events.routine", "events.open")

NOTHING = "Nothing has happened yet."
READING = "Reading the log…"
UNKNOWN = "Nobody tells this dashboard of events."


class EventLogPane(Pane):
    """Rows of a window of the log; the cursor stays on its entry while others come.

    Attributes:
        window: the entries that are held.
        searched: the search line.
        problems_first: whether problems come before all other entries.
        known: whether there is a log to read.
        reading: whether a page is being read.
        problem: why the last page could not be read; empty if it could.
    """

    can_focus = True
    leads = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {"event-log--cursor"}
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings_of("table"),
        ("down", "cursor_down", "Down"),
        ("up", "cursor_up", "Up"),
        ("pagedown", "page(1)", "Page down"),
        ("pageup", "page(-1)", "Page up"),
    ]

    class Moved(Message):
        """The cursor has moved, so that other entries may be needed."""

        def __init__(self, *, to_end: bool = False, to_top: bool = False) -> None:
            super().__init__()
            self.to_end = to_end
            self.to_top = to_top

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self.window = EventWindow(EventFilter(), problems_first=True)
        self.searched = ""
        self.problems_first = True
        self.known = True
        self.reading = False
        self.problem = ""
        self._position: int | None = None
        self._cursor = 0
        self._first = 0

    @property
    def selected(self) -> EventEntry | None:
        """The entry under the cursor; None without entries."""
        rows = self.window.rows
        return rows[min(self._cursor, len(rows) - 1)] if rows else None

    @property
    def below(self) -> int:
        """Number of held entries below the screen."""
        return len(self.window.rows) - self._first - self._room

    @property
    def above(self) -> int:
        """Number of held entries above the screen."""
        return self._first

    @property
    def _room(self) -> int:
        return max(1, self.size.height - _DETAIL)

    def replace(self, window: EventWindow, *, at_end: bool = False) -> None:
        """Hold other entries, with the cursor on the first or the last one."""
        self.window = window
        self._position, self._first = None, 0
        self._cursor = -1 if at_end else 0

    def settle(self) -> None:
        """Put the cursor on its entry after the window has changed."""
        rows = self.window.rows
        at_top = self._cursor == 0 and self._first == 0 and self.window.at_top
        if self._cursor < 0:  # the last entry was wanted
            self._cursor = max(0, len(rows) - 1)
        elif self._position is not None and not at_top:
            place = place_of(rows, self._position)
            if place is not None:
                self._first = max(0, self._first + place - self._cursor)
                self._cursor = place
        self._move_to(self._cursor)

    def heading(self, shown: Shown) -> str:
        """Return the pane's name, its order and its filter."""
        parts = ["Events", "problems first" if self.problems_first else "newest first"]
        parts += [f"filter: {self.searched}"] if self.searched else []
        parts += ["reading…"] if self.reading and self.window.rows else []
        return cut("   ".join(map(clean, parts)), max(8, self.size.width - 4))

    def footing(self, shown: Shown) -> str:
        """Return the keys, or a problem of the last read."""
        if self.problem and self.window.rows:
            return cut(clean(self.problem.split("\n")[0]), max(8, self.size.width - 4))
        return super().footing(shown) or shown.keys.hint(*_HINTS)

    def nothing(self, shown: Shown) -> str:
        """Return why there are no rows."""
        if self.window.rows:
            return ""
        if not self.known:
            return UNKNOWN
        if self.problem:
            return "\n".join(map(clean, self.problem.split("\n")))
        if self.reading or not self.window.whole:
            return READING
        clear = shown.keys.label("events.clear")
        return f"No event matches. {clear} clears the search." if self.searched else NOTHING

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the rows on the screen, and the whole text of the one under the cursor."""
        rows, room = self.window.rows, self._room
        lines = []
        for place in range(self._first, min(self._first + room, len(rows))):
            line = _row(shown, rows[place], width)
            if place == self._cursor:
                line.pad_right(width - line.cell_len)
                line.stylize_before(self.get_component_rich_style("event-log--cursor"))
            lines.append(line)
        lines += [Text()] * (room - len(lines))
        if self.selected is not None:
            lines += _detail(shown, self.selected, width)
        return Text("\n", no_wrap=True).join(lines[:height])

    def on_resize(self) -> None:
        """Keep the cursor on the screen."""
        self._move_to(self._cursor)
        super().on_resize()

    def _move_to(self, place: int) -> None:
        rows, room = self.window.rows, self._room
        self._cursor = max(0, min(place, len(rows) - 1))
        self._first = max(0, min(self._first, self._cursor, len(rows) - room))
        self._first = max(self._first, self._cursor - room + 1)
        self._position = rows[self._cursor].position if rows else None

    def _go(self, place: int) -> None:
        self._move_to(place)
        if self.shown is not None:
            self.show(self.shown)
        self.post_message(self.Moved())

    def action_cursor_down(self) -> None:
        """Move to the next entry."""
        self._go(self._cursor + 1)

    def action_cursor_up(self) -> None:
        """Move to the entry before."""
        self._go(self._cursor - 1)

    def action_page(self, pages: int) -> None:
        """Move by the visible number of rows."""
        self._go(self._cursor + pages * self._room)

    def action_scroll_top(self) -> None:
        """Move to the log's first entry."""
        self._go(0)
        self.post_message(self.Moved(to_top=True))

    def action_scroll_bottom(self) -> None:
        """Move to the log's last entry."""
        self._go(len(self.window.rows))
        self.post_message(self.Moved(to_end=True))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Move down."""
        event.stop()
        self._go(self._cursor + WHEEL_ROWS)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Move up."""
        event.stop()
        self._go(self._cursor - WHEEL_ROWS)

    def on_click(self, event: events.Click) -> None:
        """Move to the row."""
        offset = event.get_content_offset(self)
        if offset is not None and offset.y < self._room:
            self._go(self._first + offset.y)


def _row(shown: Shown, entry: EventEntry, width: int) -> Text:
    row = Text.assemble((_stamp(shown, entry.time, "%m-%d %H:%M:%S"), MUTED), "  ")
    row.append(clean(entry.mark)[:1], MARK_COLOURS.get(entry.mark, MUTED)).append("  ")
    if width >= _WITH_WORD:
        row.append(f"{cut(clean(entry.word), _WORD):<{_WORD}}  ", MUTED)
    row.append(_words(shown, entry))
    row.truncate(max(1, width), overflow="ellipsis")
    return row


def _detail(shown: Shown, entry: EventEntry, width: int) -> list[Text]:
    """Return the entry's time, kind and whole text, in three lines after an empty one."""
    stamp = _stamp(shown, entry.time, "%Y-%m-%d %H:%M:%S")
    kind = " ".join(dict.fromkeys((entry.kind, entry.word)))
    about = [stamp, kind, entry.run, f"by {entry.by}" if entry.by else ""]
    head = Text(cut("  ".join(clean(part) for part in about if part), width), MUTED)
    lines = wrap(_words(shown, entry), max(8, width), max_lines=_DETAIL - 2, placeholder=" …")
    return [Text(), head, *(Text(line) for line in lines)]


def _words(shown: Shown, entry: EventEntry) -> str:
    """Return the text, with the beginning and the end of an outage."""
    if not entry.since:
        return clean(entry.text)
    since, until = (_stamp(shown, moment, "%m-%d %H:%M:%S") for moment in (entry.since, entry.time))
    return f"{clean(entry.text)} (from {since} to {until})"


def _stamp(shown: Shown, stamp: str, form: str) -> str:
    when = moment(stamp)
    return f"{when.astimezone(shown.zone):{form}}" if when else ""
