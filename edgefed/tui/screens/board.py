"""Functions that build the common parts of all screens, which have no common base class."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from textual.dom import DOMNode
from textual.widget import Widget

from edgefed.tui.keys.keymap import Keymap
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.panes.base.keyline import KeyLine
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.panes.base.too_small import LEAST, TooSmall
from edgefed.tui.panes.frame.banner import Banner
from edgefed.tui.panes.frame.header import HeaderPane
from edgefed.tui.state.display_state import DisplayState
from edgefed.tui.state.interfaces import Control, Events, Runs
from edgefed.tui.state.key_orders import READ_ONLY, REPLAYED

WIDTHS = [(0, "-thin"), (LEAST[0], "-narrow"), (100, "-wide")]
HEIGHTS = [(0, "-short"), (LEAST[1], "-normal"), (30, "-tall")]
"""Size classes of a screen: from how many columns and lines each holds."""


@dataclass(frozen=True)
class Board:
    """The common parameters of screens.

    Attributes:
        watch: the state to draw.
        glyphs: the characters for it.
        control: takes orders; None where the screen is read-only.
        runs: the runs to compare; None where they are not known.
        events: the event log; None where it is not known.
        starts_runs: whether the dashboard starts runs.
    """

    watch: DisplayState
    glyphs: Glyphs
    control: Control | None
    runs: Runs | None = None
    starts_runs: bool = False
    events: Events | None = None

    @property
    def keys(self) -> Keymap:
        """Labels of the keys of actions."""
        return self.watch.keys

    @property
    def refusal(self) -> str:
        """The reason why no orders are possible, if so."""
        return REPLAYED if self.watch.replayed else READ_ONLY

    @property
    def read_only(self) -> bool:
        """Whether no orders are possible."""
        return self.control is None


def top(board: Board) -> Iterator[Widget]:
    """Yield the widgets above the panes of a screen."""
    yield TooSmall(board.glyphs, id="too-small")
    yield HeaderPane(board.glyphs, id="header")
    yield Banner(board.glyphs, id="banner")


def bottom(board: Board, *, device_keys: bool = False) -> Iterator[Widget]:
    """Yield the widgets below the panes of a screen, which may have keys about one device."""
    yield KeyLine(
        board.glyphs,
        read_only=board.read_only,
        starts_runs=board.starts_runs,
        device_keys=device_keys,
        id="keys",
    )


def draw_panes(screen: DOMNode, board: Board) -> None:
    """Draw every pane of a screen from the newest snapshot."""
    shown = board.watch.shown()
    for pane in screen.query(Pane):
        pane.show(shown)
