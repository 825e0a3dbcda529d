"""Functions that build the common parts of all screens, which have no common base class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from textual.dom import DOMNode
from textual.widget import Widget

from edgefed.tui.display_state import DisplayState
from edgefed.tui.panes.banner import Banner
from edgefed.tui.panes.header import Header
from edgefed.tui.panes.keyline import KeyLine
from edgefed.tui.panes.pane import Pane
from edgefed.tui.panes.too_small import LEAST, TooSmall
from edgefed.tui.symbols import Glyphs

WIDTHS = [(0, "-thin"), (LEAST[0], "-narrow"), (100, "-wide")]
HEIGHTS = [(0, "-short"), (LEAST[1], "-normal"), (30, "-tall")]
"""Size classes of a screen: from how many columns and lines each holds."""


@dataclass(frozen=True)
class Board:
    """What a screen is given: what to draw, with which characters, and whether it may order."""

    watch: DisplayState
    glyphs: Glyphs
    read_only: bool


def top(board: Board) -> Iterator[Widget]:
    """Yield what stands above the panes of a screen."""
    yield TooSmall(board.glyphs, id="too-small")
    yield Header(board.glyphs, id="header")
    yield Banner(board.glyphs, id="banner")


def bottom(board: Board) -> Iterator[Widget]:
    """Yield what stands below the panes of a screen."""
    yield KeyLine(board.glyphs, read_only=board.read_only, id="keys")


def draw_panes(screen: DOMNode, board: Board) -> None:
    """Draw every pane of a screen from the newest snapshot."""
    shown = board.watch.shown()
    for pane in screen.query(Pane):
        pane.show(shown)
