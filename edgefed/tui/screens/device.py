"""The screen of one device, opened from the device table."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.screen import Screen

from edgefed.tui.panes.device_detail import (
    DeviceDataPane,
    DeviceHealthPane,
    DeviceRoundsPane,
    DeviceStatePane,
)
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top


class DeviceScreen(Screen[None]):
    """All that the snapshot knows of a device."""

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [("escape,q", "dismiss", "Back")]

    def __init__(self, board: Board, device: str) -> None:
        super().__init__(classes="board")
        self._board = board
        self._device = device

    def compose(self) -> ComposeResult:
        """Lay out the panes."""
        glyphs, device = self._board.glyphs, self._device
        yield from top(self._board)
        with Horizontal(id="device-above"):
            yield DeviceStatePane(glyphs, device, id="device-state")
            yield DeviceHealthPane(glyphs, device, id="device-health")
        with Horizontal(id="device-below"):
            yield DeviceDataPane(glyphs, device, id="device-data")
            yield DeviceRoundsPane(glyphs, device, id="device-rounds")
        yield from bottom(self._board)

    def on_screen_resume(self) -> None:
        """Catch up with what came while the screen was hidden."""
        self.draw()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        draw_panes(self, self._board)
