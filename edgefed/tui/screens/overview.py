"""Screen 1: an overview of the run."""

from __future__ import annotations

from functools import partial

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from edgefed.events.history.known_runs import RunDetails
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.theme import ORANGE, SKY
from edgefed.tui.panes.base.curve import CurvePane
from edgefed.tui.panes.devices.attention import AttentionPane
from edgefed.tui.panes.devices.fleet import FleetPane
from edgefed.tui.panes.frame.events import EventsPane
from edgefed.tui.panes.runs.round import RoundPane
from edgefed.tui.panes.runs.traffic import TrafficPane
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top
from edgefed.tui.screens.device import DeviceScreen
from edgefed.tui.screens.device_keys import DeviceKeysScreen
from edgefed.tui.state.key_orders import ENDED
from edgefed.tui.state.run_reading import RunReading


class OverviewScreen(DeviceKeysScreen):
    """Round, attention, curves, bytes, the grid of devices, and events."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS = bindings_of("overview")
    AUTO_FOCUS = "#fleet"

    def __init__(self, board: Board) -> None:
        super().__init__(board)
        self._read_of: object = None
        self._reading = RunReading[RunDetails](self, self._take)

    def compose(self) -> ComposeResult:
        """Lay out the panes."""
        glyphs = self._board.glyphs
        yield from top(self._board)
        yield RoundPane(glyphs, id="round")
        with Horizontal(id="middle"):
            yield CurvePane(glyphs, "accuracy", SKY)
            yield CurvePane(glyphs, "loss", ORANGE)
            with Vertical(id="side"):
                yield AttentionPane(glyphs, id="attention")
                yield TrafficPane(glyphs, id="traffic")
        yield FleetPane(glyphs, id="fleet", orders=not self._board.read_only)
        yield EventsPane(glyphs, id="events")
        yield from bottom(self._board, device_keys=True)

    def on_screen_resume(self) -> None:
        """Draw the changes since the screen was hidden."""
        self.draw()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot; ask where the model of an ended run is."""
        run, runs = self._board.watch.shown().run, self._board.runs
        ended = (run.run, run.status) if run is not None and run.status in ENDED else None
        self.set_class(ended is not None, "-ended")
        draw_panes(self, self._board)
        if ended == self._read_of:
            return
        self._read_of, self.query_one(RoundPane).model = ended, ""
        if ended is not None and runs is not None:
            self._reading.ask(partial(runs.run_details, ended[0]))

    def _take(self, details: RunDetails | None, problem: str) -> None:
        """Show the model's path; without an answer, none."""
        del problem
        panes = self.query(RoundPane)  # none while the dashboard closes
        if details is not None and panes:
            panes.first().model = details.model_path
            draw_panes(self, self._board)

    def chosen(self) -> str | None:
        """Return the id of the device under the cursor."""
        return self.query_one(FleetPane).selected

    @on(FleetPane.Opened)
    def open_cell(self, event: FleetPane.Opened) -> None:
        """Open the device of a cell that was clicked."""
        event.stop()
        self.action_open_device()

    def action_open_device(self) -> None:
        """Show all about the device under the cursor."""
        fleet = self.query_one(FleetPane)
        if fleet.selected is not None:
            self.app.push_screen(DeviceScreen(self._board, fleet.selected, fleet.ids))

    def action_other_curve(self) -> None:
        """Show the other curve, where only one fits."""
        self.toggle_class("-loss")

    def action_last_rounds(self) -> None:
        """Draw the curves of the last rounds, or of all."""
        for curve in self.query(CurvePane):
            curve.zoomed = not curve.zoomed
        self.draw()

    def action_all_events(self) -> None:
        """Show accepted replies among the events, or hide them."""
        events = self.query_one(EventsPane)
        events.routine = not events.routine
        self.draw()
