"""Screen 6: the widths that matching found for the layers, now and by round."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.screen import Screen

from edgefed.tui.panes.matching import LayersPane, WidthsPane
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top


class MatchingScreen(Screen[None]):
    """The last matching of each layer, and the atoms by round."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    def __init__(self, board: Board) -> None:
        super().__init__(classes="board")
        self._board = board

    def compose(self) -> ComposeResult:
        """Lay out the panes."""
        glyphs = self._board.glyphs
        yield from top(self._board)
        yield LayersPane(glyphs, id="layers")
        yield WidthsPane(glyphs, id="widths")
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Catch up with what came while the screen was hidden."""
        self.draw()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        draw_panes(self, self._board)
