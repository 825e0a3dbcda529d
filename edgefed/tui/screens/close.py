"""The question before the dashboard is closed where more ends with it."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from edgefed.tui.keymap import Keymap
from edgefed.tui.symbols import Glyphs


class CloseScreen(ModalScreen[bool]):
    """Answers True when the user wants to close; the key for quitting says so too."""

    AUTO_FOCUS = "#cancel"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "answer(False)", "Cancel"),
        Binding("q", "answer(False)", "Cancel", id="view.back"),
        Binding("ctrl+q", "answer(True)", "Close", id="app.quit"),
    ]

    def __init__(self, glyphs: Glyphs, question: str, keys: Keymap) -> None:
        super().__init__()
        self._keys = keys
        self._glyphs = glyphs
        self._question = question

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        with Vertical(id="close") as box:
            box.border_title = Content("Close the dashboard?")
            box.border_subtitle = Content(f"esc leaves, {self._keys.label('app.quit')} closes")
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
