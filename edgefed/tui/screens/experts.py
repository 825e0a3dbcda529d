"""Screen 5: which label and which device uses which expert."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen

from edgefed.tui.panes.experts import ExpertLoadPane, ExpertTablePane, MixturePane
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top


class ExpertsScreen(Screen[None]):
    """The table q(z|y), the load of the experts, and the devices' mixtures."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    def __init__(self, board: Board) -> None:
        super().__init__(classes="board")
        self._board = board

    def compose(self) -> ComposeResult:
        """Lay out the panes."""
        glyphs = self._board.glyphs
        yield from top(self._board)
        with Horizontal(id="experts"):
            yield ExpertTablePane(glyphs, id="expert-table")
            yield ExpertLoadPane(glyphs, id="expert-load")
        yield MixturePane(glyphs, id="mixtures")
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Catch up with what came while the screen was hidden."""
        self.draw()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        draw_panes(self, self._board)
