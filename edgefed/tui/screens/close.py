"""The question before the dashboard is closed where more ends with it."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from edgefed.tui.symbols import Glyphs


class CloseScreen(ModalScreen[bool]):
    """Answers True when the user wants to close; a second ctrl+q says so too."""

    AUTO_FOCUS = "#cancel"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,q", "answer(False)", "Cancel"),
        ("ctrl+q", "answer(True)", "Close"),
    ]

    def __init__(self, glyphs: Glyphs, question: str) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._question = question

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="close") as box:
            box.border_title = Content("Close the dashboard?")
            box.border_subtitle = Content("esc leaves, ctrl+q closes")
            yield Static(self._glyphs.text(Text(self._question)))
            with Horizontal(id="buttons"):
                yield Button("Cancel", id="cancel", compact=True)
                yield Button("Close", id="sure", variant="error", compact=True)

    @on(Button.Pressed)
    def choose(self, event: Button.Pressed) -> None:
        """Leave, or close."""
        self.dismiss(event.button.id == "sure")

    def action_answer(self, sure: bool) -> None:
        """Answer by a key."""
        self.dismiss(sure)
