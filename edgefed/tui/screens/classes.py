"""Screen 3: the classes and devices for which the model is right."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.screen import Screen

from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.panes.devices.device_tests import DeviceTestsPane
from edgefed.tui.panes.methods.classes import ClassPane, ClassTablePane
from edgefed.tui.panes.methods.confusion import ConfusionPane
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top


class ClassesScreen(Screen[None]):
    """Accuracy by class, the confusion matrix, and accuracy by device."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS = bindings_of("classes")

    def __init__(self, board: Board) -> None:
        super().__init__(classes="board")
        self._board = board

    def compose(self) -> ComposeResult:
        """Lay out the panes."""
        glyphs = self._board.glyphs
        yield from top(self._board)
        with Horizontal(id="classes"):
            yield ClassTablePane(glyphs, id="class-table")
            yield ConfusionPane(glyphs, id="confusion")
        yield DeviceTestsPane(glyphs, id="device-tests")
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Draw the changes since the screen was hidden."""
        self.draw()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        draw_panes(self, self._board)

    def action_class_order(self) -> None:
        """Show the worst class first, or the classes by label."""
        table = self.query_one(ClassTablePane)
        table.in_order = not table.in_order
        self.draw()

    def action_other_place(self) -> None:
        """Show the coordinator's test, or the devices'."""
        panes: tuple[ClassPane, ...] = (
            self.query_one(ClassTablePane),
            self.query_one(ConfusionPane),
        )
        for pane in panes:
            pane.place = "devices" if pane.place == "coordinator" else "coordinator"
        self.draw()
