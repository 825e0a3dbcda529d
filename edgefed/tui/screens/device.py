"""The screen of one device, opened from the device table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.timer import Timer

from edgefed.errors import EdgeFedError
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.panes.devices.device_detail import (
    DeviceDataPane,
    DeviceHealthPane,
    DevicePane,
    DeviceRoundsPane,
    DeviceStatePane,
)
from edgefed.tui.panes.devices.device_log import DeviceLogPane
from edgefed.tui.screens.board import HEIGHTS, WIDTHS, Board, bottom, draw_panes, top
from edgefed.tui.screens.device_keys import DeviceKeysScreen
from edgefed.tui.state.interfaces import Control
from edgefed.tui.state.messages import CoordinatorRequest, RequestWanted

LOG_EVERY = 2.0
"""Seconds between two looks at the log while it is shown."""

_WITH_LOG = "-log"


class LogRead(Message):
    """The result of a request for a device's log: its lines, or a problem."""

    def __init__(self, device: str, lines: tuple[str, ...], problem: str = "") -> None:
        super().__init__()
        self.device = device
        self.lines = lines
        self.problem = problem


class DeviceScreen(DeviceKeysScreen):
    """All known facts about a device.

    Args:
        board: the state to draw, and the receiver of requests.
        device: its id.
        ids: the devices in the order in which keys step through them; the fleet's when left out.
    """

    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "dismiss", "Back"),
        *bindings_of("detail"),
    ]

    def __init__(self, board: Board, device: str, ids: Sequence[str] = ()) -> None:
        super().__init__(board)
        self._device = device
        self._ids = ids
        self._asking = False
        self._timer: Timer | None = None

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
        yield DeviceLogPane(glyphs, device, id="device-log")
        yield from bottom(self._board, device_keys=True)

    def copied(self) -> str:
        """Return the id of the device."""
        return self._device

    def on_mount(self) -> None:
        """Poll the log while it is shown."""
        self._timer = self.set_interval(LOG_EVERY, self._ask_for_log, pause=True)

    def on_screen_resume(self) -> None:
        """Draw the changes since the screen was hidden."""
        self.draw()

    def draw(self) -> None:
        """Draw every pane from the newest snapshot."""
        draw_panes(self, self._board)

    def chosen(self) -> str:
        """Return the id of the device that is shown."""
        return self._device

    def action_step_device(self, steps: int) -> None:
        """Show the next device, or the one before."""
        snapshot = self._board.watch.shown().snapshot
        there = [view.device for view in snapshot.devices] if snapshot else []
        known = set(there)
        ids = [device for device in self._ids if device in known]
        if self._device not in ids:
            ids = there
        if not ids:
            return
        at = ids.index(self._device) if self._device in ids else -1
        self._device = ids[(at + steps) % len(ids)]
        for pane in self.query(DevicePane):
            pane.device = self._device
        self._begin_log()
        self.draw()

    def action_device_log(self) -> None:
        """Show the end of the agent's log, or hide it."""
        if self.control_for(self._device) is not None:
            self.toggle_class(_WITH_LOG)
            self._begin_log()
            self.draw()

    def _begin_log(self) -> None:
        """Ask for the log if it is shown; otherwise ask no more."""
        self.query_one(DeviceLogPane).clear()
        if self._timer is None:
            return
        if self.has_class(_WITH_LOG):
            self._asking = False
            self._timer.resume()
            self._ask_for_log()
        else:
            self._timer.pause()

    def _ask_for_log(self) -> None:
        control = self._board.control
        if control is None or self._asking:
            return
        self._asking = True
        ask = partial(self._read_log, control, self._device)
        self.post_message(
            RequestWanted(CoordinatorRequest(ask, f"Could not read the log of {self._device}."))
        )

    def _read_log(self, control: Control, device: str) -> str:
        """Read the log in a thread of the app's; the pane shows an error."""
        try:
            self.post_message(LogRead(device, control.log(device)))
        except EdgeFedError as error:
            self.post_message(LogRead(device, (), error.message))
        except Exception as error:  # else the pane would wait for it forever
            self.post_message(LogRead(device, (), f"{type(error).__name__}: {error}"))
        return ""

    def on_log_read(self, message: LogRead) -> None:
        """Show the lines; stop asking after a problem, which would be reported at each attempt."""
        if message.device != self._device:
            return
        self._asking = False
        pane = self.query_one(DeviceLogPane)
        pane.problem = message.problem
        if not message.problem:
            pane.tail = message.lines
        elif self._timer is not None:
            self._timer.pause()
        self.draw()
