"""The question before a form is left whose changes would be lost."""

from __future__ import annotations

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from edgefed.units import counted


class DiscardScreen(ModalScreen[bool]):
    """Answers True when the changes may be lost."""

    AUTO_FOCUS = "#cancel"
    BINDINGS: ClassVar[list[BindingType]] = [("escape", "dismiss(False)", "Stay")]

    def __init__(self, changes: int) -> None:
        super().__init__()
        self._changes = changes

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="close") as box:
            box.border_title = Content("Leave the form?")
            box.border_subtitle = Content("esc stays")
            yield Static(f"{counted(self._changes, 'change')} would be lost; no run is started.")
            with Horizontal(id="buttons"):
                yield Button("Stay", id="cancel", compact=True)
                yield Button("Leave", id="sure", variant="error", compact=True)

    @on(Button.Pressed)
    def choose(self, event: Button.Pressed) -> None:
        """Stay, or leave."""
        self.dismiss(event.button.id == "sure")
