"""The question before an order about a device: its consequence, and for a pause the reason."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.text_format import clean, cut_middle
from edgefed.tui.state.device_key_orders import DeviceOrder
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
