"""The base of screens with keys that concern one device: ping, and orders about it."""

from __future__ import annotations

from functools import partial

from textual.screen import Screen

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.screens.board import Board
from edgefed.tui.screens.device_question import DeviceQuestion
from edgefed.tui.state.device_key_orders import DeviceKey, DeviceOrder, order_for_device
from edgefed.tui.state.interfaces import Control
from edgefed.tui.state.messages import CoordinatorRequest, RequestWanted


class DeviceKeysScreen(Screen[None]):
    """A screen that shows or chooses a device.

    Args:
        board: the state to draw, and the receiver of requests.
    """

    BINDINGS = bindings_of("device")

    def __init__(self, board: Board) -> None:
        super().__init__(classes="board")
        self._board = board

    def chosen(self) -> str | None:
        """Return the id of the device that keys concern; None without one."""
        raise NotImplementedError

    def control_for(self, device: str | None) -> Control | None:
        """Return the receiver of a request about a device; if there is none, show why."""
        if self._board.control is None:
            self.notify(self._board.refusal, severity="warning", markup=False)
        return None if device is None else self._board.control

    def action_ping_device(self) -> None:
        """Measure the response time of the device."""
        device = self.chosen()
        control = self.control_for(device)
        if control is not None and device is not None:
            ask = partial(_pinged, control, device)
            self.post_message(RequestWanted(CoordinatorRequest(ask, f"Could not ping {device}.")))

    def action_order_device(self, key: DeviceKey) -> None:
        """Give the order of a key, after a question where it has a cost."""
        view = self._view()
        control = self.control_for(self.chosen())
        if control is None or view is None:
            return
        order = order_for_device(key, view, self._board.keys)
        if isinstance(order, str):
            self.notify(order, severity="warning", markup=False)
        elif order.question:
            decided = partial(self._decided, control, order)
            self.app.push_screen(DeviceQuestion(self._board.glyphs, order), decided)
        else:
            self._decided(control, order, "")

    def _decided(self, control: Control, order: DeviceOrder, reason: str | None) -> None:
        if reason is not None:
            ask = partial(_ordered, control, order, reason)
            failed = f"Could not {order.action} {order.device}."
            self.post_message(RequestWanted(CoordinatorRequest(ask, failed)))

    def _view(self) -> DeviceSnapshot | None:
        """Return the newest of the chosen device, also while the display is frozen."""
        snapshot, chosen = self._board.watch.latest.snapshot, self.chosen()
        devices = snapshot.devices if snapshot else ()
        return next((view for view in devices if view.device == chosen), None)


def _pinged(control: Control, device: str) -> str:
    return f"{device} answered in {control.ping(device) * 1000:.1f} ms."


def _ordered(control: Control, order: DeviceOrder, reason: str) -> str:
    control.device_order(order.action, order.device, reason)
    return order.taken()
