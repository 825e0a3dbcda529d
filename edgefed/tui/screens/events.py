"""Screen 9: the whole event log, searched and filtered, problems first."""

from __future__ import annotations

from typing import TypeAlias

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Input

from edgefed.events.base.event_entries import EventFilter, EventPage
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.panes.frame.event_log import EventLogPane
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top
from edgefed.tui.screens.device import DeviceScreen
from edgefed.tui.state.event_window import EventRead, EventWindow
from edgefed.tui.state.run_reading import RunReading

FRESH_EVERY = 1.0
"""Seconds between two looks for new entries."""

_Page: TypeAlias = tuple[EventWindow, EventRead, EventPage]


class EventsScreen(Screen[None]):
    """The log with its search line; pages are read where the user scrolls."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS = bindings_of("events")
    AUTO_FOCUS = "#event-log"

    def __init__(self, board: Board) -> None:
        super().__init__(classes="board")
        self._board = board
        self._routine = False
        self._seen: object = None
        self._done = 0
        self._reading = RunReading[_Page](self, self._take)

    def compose(self) -> ComposeResult:
        """Lay out search line and log."""
        yield from top(self._board)
        with Vertical(id="event-screen"):
            hint = "words, or device:jetson-03 kind:lost by:anna"
            yield Input(placeholder=hint, id="filter", compact=True)
            yield EventLogPane(self._board.glyphs, id="event-log")
        yield from bottom(self._board)

    @property
    def _pane(self) -> EventLogPane:
        return self.query_one(EventLogPane)

    def on_mount(self) -> None:
        """Begin without a search, at the top."""
        self.query_one("#filter").display = False
        self._pane.known = self._board.events is not None
        self._begin()
        self.set_interval(FRESH_EVERY, self._look)

    def on_screen_resume(self) -> None:
        """Read and draw the changes since the screen was hidden."""
        self.draw()
        self._look()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        draw_panes(self, self._board)

    # -- reading ------------------------------------------------------------------------------

    def _begin(self, *, at_end: bool = False) -> None:
        """Hold other entries, from the top or from the end of the log."""
        pane = self._pane
        wanted = EventFilter.parse(pane.searched).model_copy(update={"routine": self._routine})
        window = EventWindow(wanted, problems_first=pane.problems_first)
        if at_end:
            window.jump_to_end()
        pane.replace(window, at_end=at_end)
        self._advance()
        self.draw()

    def _look(self) -> None:
        """Read new entries, if there are any."""
        shown = self._board.watch.shown()
        if not self.is_current or shown.cut_off or shown.frozen_at is not None:
            return
        if shown.replay is not None and shown.replay.done < self._done:  # it went back
            self._begin()
        self._done = shown.replay.done if shown.replay is not None else 0
        self._advance()

    def _advance(self) -> None:
        """Read the next page that is needed, if there is one."""
        events, pane = self._board.events, self._pane
        read = None if pane.reading else self._needed()
        if events is None or read is None:
            return
        pane.reading, window = True, pane.window
        page = events.event_page
        self._reading.ask(
            lambda: (window, read, page(read.wanted, before=read.before, after=read.after))
        )

    def _needed(self) -> EventRead | None:
        pane, room = self._pane, max(10, 2 * self.size.height)
        read = pane.window.older() if pane.below < room else None
        if read is None and pane.above < room:
            read = pane.window.newer()
        news = self._news()
        if read is None and news != self._seen:
            read, self._seen = pane.window.fresh(), news
        return read

    def _news(self) -> object:
        """Return a value that changes with every new entry."""
        shown = self._board.watch.shown()
        if shown.replay is not None:
            return shown.replay.done
        return shown.snapshot.lines[:1] if shown.snapshot else None

    def _take(self, result: _Page | None, problem: str) -> None:
        pane = self._pane
        pane.reading, pane.problem = False, problem
        if result is not None:
            window, read, page = result
            window.take(read, page)
            if window is pane.window:
                pane.settle()
        self.draw()
        if not problem:
            self._advance()

    @on(EventLogPane.Moved)
    def read_more(self, event: EventLogPane.Moved) -> None:
        """Read the entries that the cursor comes near to."""
        window = self._pane.window
        if event.to_end and not window.whole:
            self._begin(at_end=True)
        elif event.to_top and not window.at_top:
            self._begin()
        else:
            self._advance()

    # -- keys ---------------------------------------------------------------------------------

    def action_search(self) -> None:
        """Ask for words and filters."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def action_clear_search(self) -> None:
        """Show every entry again."""
        field = self.query_one("#filter", Input)
        field.value = ""
        field.display = False
        self._pane.focus()

    @on(Input.Changed, "#filter")
    def search_as_typed(self, event: Input.Changed) -> None:
        """Search while the user types."""
        if event.value.strip() != self._pane.searched:
            self._pane.searched = event.value.strip()
            self._begin()

    @on(Input.Submitted, "#filter")
    def back_to_log(self, event: Input.Submitted) -> None:
        """Keep the search and go back to the rows."""
        event.input.display = bool(self._pane.searched)
        self._pane.focus()

    def action_problems_first(self) -> None:
        """Show problems first, or the newest entries."""
        self._pane.problems_first = not self._pane.problems_first
        self._begin()

    def action_all_events(self) -> None:
        """Show accepted replies, too, or hide them."""
        self._routine = not self._routine
        self._begin()

    def action_open_device(self) -> None:
        """Show all about the device of the entry under the cursor."""
        entry, snapshot = self._pane.selected, self._board.watch.shown().snapshot
        known = {view.device for view in snapshot.devices} if snapshot else set()
        if entry is not None and entry.device in known:
            self.app.push_screen(DeviceScreen(self._board, entry.device))
        else:
            text = (
                "The event is about no device."
                if not (entry and entry.device)
                else (f"The fleet does not know {entry.device} any more.")
            )
            self.notify(text, severity="warning", markup=False)

    def copied(self) -> str | None:
        """Return the text of the entry under the cursor."""
        entry = self._pane.selected
        return None if entry is None else entry.text
