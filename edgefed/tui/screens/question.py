"""A question with two answers; the one that changes nothing has the focus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from edgefed.tui.look.symbols import Glyphs


@dataclass(frozen=True)
class QuestionText:
    """The text of a question.

    Attributes:
        title: the question.
        text: its consequence.
        sure: label of the button for yes.
        leave: label of the button for no.
        hint: the keys, as the lower border shows them.
    """

    title: str
    text: str
    sure: str
    leave: str = "Cancel"
    hint: str = "y yes, esc leaves"


class QuestionScreen(ModalScreen[bool]):
    """Answers True when the user is sure."""

    AUTO_FOCUS = "#cancel"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape,n", "answer(False)", "No"),
        ("y", "answer(True)", "Yes"),
        Binding("q", "answer(False)", "No", id="view.back"),
    ]

    def __init__(self, glyphs: Glyphs, question: QuestionText) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._question = question

    def compose(self) -> ComposeResult:
        """Lay out the question."""
        question = self._question
        with Vertical(id="dialog") as box:
            box.border_title = Content(self._glyphs.line(question.title))
            box.border_subtitle = Content(self._glyphs.line(question.hint))
            yield Static(self._glyphs.text(Text(question.text)))
            with Horizontal(id="buttons"):
                yield Button(question.leave, id="cancel", compact=True)
                yield Button(question.sure, id="sure", variant="error", compact=True)

    @on(Button.Pressed)
    def choose(self, event: Button.Pressed) -> None:
        """Answer by a button."""
        self.dismiss(event.button.id == "sure")

    def action_answer(self, sure: bool) -> None:
        """Answer by a key."""
        self.dismiss(sure)
