"""The screen with the map of rounds by devices, opened from the device table."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.panes.runs.rounds_map import RoundsMap
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top


class RoundsMapScreen(Screen[None]):
    """The devices that slow rounds down or miss them."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "dismiss", "Back"),
        Binding("m", "dismiss", "Back", id="devices.map"),
        *bindings_of("table"),
        ("down", "cursor_down", "Down"),
        ("up", "cursor_up", "Up"),
        ("pagedown", "scroll_page(1)", "Page down"),
        ("pageup", "scroll_page(-1)", "Page up"),
    ]

    def __init__(self, board: Board) -> None:
        super().__init__(classes="board")
        self._board = board

    def compose(self) -> ComposeResult:
        """Lay out the map."""
        yield from top(self._board)
        yield RoundsMap(self._board.glyphs, id="rounds-map")
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Draw the changes since the screen was hidden."""
        self.draw()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        draw_panes(self, self._board)

    def action_cursor_down(self) -> None:
        """Move down by one row."""
        self.query_one(RoundsMap).scroll_rows(1)

    def action_cursor_up(self) -> None:
        """Move up by one row."""
        self.query_one(RoundsMap).scroll_rows(-1)

    def action_scroll_top(self) -> None:
        """Move to the first row."""
        pane = self.query_one(RoundsMap)
        pane.scroll_rows(-pane.first)

    def action_scroll_bottom(self) -> None:
        """Move to the last row."""
        devices = self._board.watch.shown().snapshot
        self.query_one(RoundsMap).scroll_rows(len(devices.devices) if devices else 0)

    def action_scroll_page(self, pages: int) -> None:
        """Move by the visible number of rows."""
        pane = self.query_one(RoundsMap)
        pane.scroll_rows(pages * max(1, pane.size.height - 2))
