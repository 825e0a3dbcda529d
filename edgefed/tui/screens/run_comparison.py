"""One run, or some side by side: curves on one axis, results, and settings that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen

from edgefed.events.history.run_comparison import Comparison, compare
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.panes.base.compared_runs import ComparedRunsPane
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.panes.runs.run_comparison import RunComparisonPane
from edgefed.tui.panes.runs.run_curves import RunCurvesPane
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top
from edgefed.tui.state.run_reading import RunReading


class RunComparisonScreen(Screen[None]):
    """The curves of some runs and their comparison; read anew when a round of one ends."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "dismiss", "Back"),
        Binding("enter", "dismiss", "Back", id="runs.open"),
        *bindings_of("comparison"),
    ]
    AUTO_FOCUS = "#comparison"

    def __init__(self, board: Board, runs: Sequence[str]) -> None:
        super().__init__(classes="board")
        self._board = board
        self._runs = runs
        self._read_at: object = None
        self._reading = RunReading[Comparison](self, self._take)

    def compose(self) -> ComposeResult:
        """Lay out the curves above the comparison."""
        glyphs = self._board.glyphs
        yield from top(self._board)
        with Horizontal(id="run-curves"):
            yield RunCurvesPane(glyphs, "accuracy", id="run-accuracy")
            yield RunCurvesPane(glyphs, "loss", id="run-loss")
        yield RunComparisonPane(glyphs, id="comparison")
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Read the runs again."""
        self._read_at = None
        self.draw()

    def draw(self) -> None:
        """Draw the panes; read the runs again if one of them has advanced."""
        draw_panes(self, self._board)
        run = self._board.watch.shown().run
        further = run is not None and run.run in self._runs and not self._board.watch.replayed
        state = (run.status, run.round) if run is not None and further else ()
        if state != self._read_at:
            self._read_at = state
            self._read()

    def _read(self) -> None:
        runs, names = self._board.runs, self._runs
        if runs is not None:
            self._reading.ask(lambda: compare([runs.run_details(name) for name in names]))

    def _take(self, comparison: Comparison | None, problem: str) -> None:
        """Pass the result to the panes; after a failure, they keep theirs."""
        for pane in self.query(Pane):
            if isinstance(pane, ComparedRunsPane):  # a query knows one base of a class only
                pane.take(comparison, problem)
        draw_panes(self, self._board)

    def action_other_curve(self) -> None:
        """Show the other curve, where only one fits."""
        self.toggle_class("-loss")
