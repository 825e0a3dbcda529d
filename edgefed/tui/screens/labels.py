"""Screen 4: which labels devices lack, what supplements them, and what mixes cost."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from edgefed.tui.panes.bounties import BountiesPane
from edgefed.tui.panes.label_devices import LabelDevicesPane
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top


class LabelsScreen(Screen[None]):
    """The label bounties, and labels and budgets by device."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    def __init__(self, board: Board) -> None:
        super().__init__(classes="board")
        self._board = board

    def compose(self) -> ComposeResult:
        """Lay out the panes."""
        glyphs = self._board.glyphs
        yield from top(self._board)
        yield BountiesPane(glyphs, id="bounties")
        yield LabelDevicesPane(glyphs, id="label-devices")
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Catch up with what came while the screen was hidden."""
        self.draw()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        draw_panes(self, self._board)
