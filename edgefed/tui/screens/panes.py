"""A screen of nothing but panes: labels, experts and matching."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widget import Widget

from edgefed.tui.panes.bounties import BountiesPane
from edgefed.tui.panes.experts import ExpertLoadPane, ExpertTablePane, MixturePane
from edgefed.tui.panes.label_devices import LabelDevicesPane
from edgefed.tui.panes.matching import LayersPane, WidthsPane
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top
from edgefed.tui.symbols import Glyphs

Panes = Callable[[Glyphs], Iterable[Widget]]
"""Makes the panes of a screen, from top to bottom."""


class PanesScreen(Screen[None]):
    """Panes from top to bottom, without keys of their own.

    Args:
        board: the state to draw.
        panes: makes them.
    """

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS

    def __init__(self, board: Board, panes: Panes) -> None:
        super().__init__(classes="board")
        self._board = board
        self._panes = panes

    def compose(self) -> ComposeResult:
        """Lay out the panes."""
        yield from top(self._board)
        yield from self._panes(self._board.glyphs)
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Draw the changes since the screen was hidden."""
        self.draw()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        draw_panes(self, self._board)


def label_panes(glyphs: Glyphs) -> Iterable[Widget]:
    """Return the labels that devices lack, their supplements, and the cost of mixes."""
    return BountiesPane(glyphs, id="bounties"), LabelDevicesPane(glyphs, id="label-devices")


def expert_panes(glyphs: Glyphs) -> Iterable[Widget]:
    """Return the table q(z|y), the load of the experts, and the devices' mixtures."""
    table = ExpertTablePane(glyphs, id="expert-table")
    load = ExpertLoadPane(glyphs, id="expert-load")
    return Horizontal(table, load, id="experts"), MixturePane(glyphs, id="mixtures")


def matching_panes(glyphs: Glyphs) -> Iterable[Widget]:
    """Return the last matching of each layer, and the atoms by round."""
    return LayersPane(glyphs, id="layers"), WidthsPane(glyphs, id="widths")
