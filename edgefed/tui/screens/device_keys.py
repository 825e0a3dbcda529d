"""The base of screens with keys that concern one device: ping, and orders about it.

An order is preceded by a question with its consequence, and for a pause by one about the reason.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Button, Input, Static

from edgefed.events.base.snapshot import DeviceSnapshot
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.text_format import clean, cut_middle
from edgefed.tui.screens.board import Board
from edgefed.tui.state.device_key_orders import DeviceKey, DeviceOrder, order_for_device
from edgefed.tui.state.interfaces import Control
from edgefed.tui.state.messages import CoordinatorRequest, RequestWanted
from edgefed.wire.limits import MAX_PAUSE_REASON

_TITLE_ID = 40
"""Characters of an id in the title."""


class DeviceQuestion(ModalScreen[str | None]):
    """Answers with the reason, which may be empty, when the user is sure; with None otherwise."""

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "answer(False)", "Cancel"),
        ("y", "answer(True)", "Yes"),
        ("n", "answer(False)", "Cancel"),
        Binding("q", "answer(False)", "Cancel", id="view.back"),
    ]

    def __init__(self, glyphs: Glyphs, order: DeviceOrder) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._order = order
        self._asks_reason = order.action == "pause"

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        verb = self._order.action.capitalize()
        device = cut_middle(clean(self._order.device), _TITLE_ID)
        with Vertical(id="device-question") as box:
            box.border_title = Content(self._glyphs.line(f"{verb} {device}?"))
            box.border_subtitle = Content(
                "esc leaves" if self._asks_reason else "y yes, esc leaves"
            )
            yield Static(self._glyphs.text(Text(self._order.question)))
            if self._asks_reason:
                with Horizontal(id="device-reason"):
                    yield Static("Reason, if any: ", id="ask")
                    yield Input(id="reason", compact=True, max_length=MAX_PAUSE_REASON)
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button(verb, id="sure", variant="error", compact=True)

    def on_mount(self) -> None:
        """Set the focus where a key does no harm: on the reason, or on Cancel."""
        self.query_one("#reason" if self._asks_reason else "#cancel").focus()

    @on(Input.Submitted, "#reason")
    def submit(self) -> None:
        """Enter after the reason gives the order."""
        self.action_answer(True)

    @on(Button.Pressed)
    def choose(self, event: Button.Pressed) -> None:
        """Leave, or give the order."""
        self.action_answer(event.button.id == "sure")

    def action_answer(self, sure: bool) -> None:
        """Answer by a key."""
        reason = self.query_one("#reason", Input).value.strip() if self._asks_reason else ""
        self.dismiss(reason if sure else None)


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
