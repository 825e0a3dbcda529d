"""Screens of nothing but panes: labels, experts, matching, and the tables of any method."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widget import Widget

from edgefed.events.base.bounty_tables import BOUNTIES, bounty_of
from edgefed.events.base.method_tables import Row, TableView
from edgefed.events.methods.expert_tables import EXPERTS, MIXTURES, SHARES
from edgefed.events.methods.matching_table import LAYERS
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.panes.methods.label_devices import LabelDevicesPane
from edgefed.tui.panes.methods.method_table import SeriesPane, TablePane, named
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top

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


class TablesScreen(PanesScreen):
    """The tables of the run's method, one at a time.

    Args:
        board: the state to draw.
    """

    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("tables")]

    def __init__(self, board: Board) -> None:
        super().__init__(board, self._table_panes)
        self._place = 0

    def action_step_table(self, steps: int) -> None:
        """Show the table that many further."""
        self._place += steps
        self.draw()

    def _table_panes(self, glyphs: Glyphs) -> Iterable[Widget]:
        absent = "The method of this run shows no tables."
        yield TablePane(
            glyphs, id="table", pick=self._pick, absent=absent, leads=True, stepped=True
        )
        yield SeriesPane(glyphs, id="series", pick=self._pick)

    def _pick(self, views: Sequence[TableView]) -> TableView | None:
        return views[self._place % len(views)] if views else None


NO_BOUNTIES = (
    "This run has no label bounties: start one with\nedgefed run start --set labels.supplement=0.1"
)
NO_EXPERTS = "This run has no experts: start one with\nedgefed run start --algorithm fedmoe"
NO_TABLE = "The shares depend on the device, so that there is no table."
NO_MATCHING = "This run matches no layers: start one with\nedgefed run start --algorithm fedma"

_STATUSES = ("open", "cancelled", "closed")


def label_panes(glyphs: Glyphs) -> Iterable[Widget]:
    """Return the labels that devices lack, their supplements, and the cost of mixes."""
    pick = named(BOUNTIES)
    return (
        TablePane(
            glyphs, id="bounties", pick=pick, absent=NO_BOUNTIES, leads=True, order=_open_first
        ),
        LabelDevicesPane(glyphs, id="label-devices"),
    )


def expert_panes(glyphs: Glyphs) -> Iterable[Widget]:
    """Return the load of the experts, the table q(z|y), and the devices' mixtures."""
    load = TablePane(glyphs, id="expert-load", pick=named(EXPERTS), absent=NO_EXPERTS, leads=True)
    table = TablePane(glyphs, id="expert-table", pick=named(SHARES), absent=NO_TABLE)
    mixtures = TablePane(glyphs, id="mixtures", pick=named(MIXTURES), absent="No experts.")
    return Horizontal(load, table, id="experts"), mixtures


def matching_panes(glyphs: Glyphs) -> Iterable[Widget]:
    """Return the last matching of each layer, and the atoms by round."""
    pick = named(LAYERS)
    return (
        TablePane(glyphs, id="layers", pick=pick, absent=NO_MATCHING, leads=True),
        SeriesPane(glyphs, id="widths", pick=pick),
    )


def _open_first(row: Row) -> tuple[int, bool, str, int]:
    """Return what bounties are sorted by: open ones first, before all those without an offer."""
    bounty = bounty_of(row)
    return _STATUSES.index(bounty.status), bounty.offered > 0, bounty.device, bounty.label
