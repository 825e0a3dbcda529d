"""The base of an app that sends a terminal only changed cells, and only when it takes them."""

from __future__ import annotations

import asyncio
import select
import sys
import time

from rich.console import RenderableType
from textual import events
from textual.app import App
from textual.screen import Screen

from edgefed.tui.output.backlog import Backlog
from edgefed.tui.output.cells import Cells
from edgefed.tui.output.updates import ChangedCells, taken

_LONGEST_FAREWELL = 1.0
"""Seconds at most that the app waits at its end for an answer that its shell would get."""


class LeanApp(App[None]):
    """Draws into cells, and sends the changed ones when the terminal has taken the last ones."""

    def __init__(self) -> None:
        super().__init__()
        self._cells = Cells()
        self._backlog = Backlog(time.monotonic, _writable)

    @property
    def behind(self) -> bool:
        """Whether the terminal still has to take the last cells, so that drawing can wait."""
        return self._backlog.busy()

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        """Take an update of Textual's, and send the cells that it changes."""
        if renderable is None or self.is_headless or self._driver is None or not self._running:
            super()._display(screen, renderable)
            return
        if self._cells.size != self.size:
            self._cells.resize(*self.size)
        if taken(self._cells, renderable, self.console):
            self.send_changes()
            self.post_display_hook()
        else:
            super()._display(screen, renderable)
            self._cells.forget()

    def leave_closed_terminal(self) -> None:
        """End if the terminal has been closed; Textual would read its end again and again.

        A closed window or connection usually ends the app by SIGHUP. It does not where the terminal
        controls no session, or where SIGHUP is ignored.
        """
        if self._running and not self.is_headless and _is_closed():
            self.exit()

    def send_changes(self) -> None:
        """Send changed cells, unless the terminal still has to take the last ones."""
        if self._running and self._cells.changed and not self._backlog.busy():
            super()._display(self.screen, ChangedCells(self._cells, self._backlog))

    def action_redraw(self) -> None:
        """Send every cell: another program may have written to the terminal."""
        self._cells.forget()
        self.send_changes()

    def on_resize(self) -> None:
        """Send every cell: a terminal of another size, or a resumed one, may show anything."""
        self._cells.forget()
        self.call_later(self.send_changes)

    def on_cursor_position(self, event: events.CursorPosition) -> None:
        """Take the terminal's answer: it shows all that was sent."""
        event.stop()
        self._backlog.answered()
        self.send_changes()

    async def await_answer(self) -> None:
        """Wait for an answer of the terminal, which would be typed into the shell after the app."""
        if self._backlog.asked():
            await asyncio.sleep(min(_LONGEST_FAREWELL, 2 * self._backlog.round_trip))


def _is_closed() -> bool:
    """Return whether the other side of the terminal is gone."""
    terminal = sys.__stderr__
    if terminal is None:
        return False
    state = select.poll()  # and not isatty(), which a closed terminal denies
    state.register(terminal, 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in state.poll(0))


def _writable() -> bool:
    """Return whether the terminal's driver in this system takes more bytes."""
    terminal = sys.__stderr__
    if terminal is None or not terminal.isatty():
        return True
    return bool(select.select([], [terminal], [], 0)[1])
