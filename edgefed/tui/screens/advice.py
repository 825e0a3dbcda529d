"""The advice for a recipe: the methods that it compared, and the one that it recommends."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from edgefed.terminal.console import columns
from edgefed.tui.look.text_format import clean, cut
from edgefed.tui.look.theme import GREEN, MUTED
from edgefed.tui.screens.board import Board
from edgefed.tui.state.launching import AdvisedRecipe


class AdviceScreen(ModalScreen[bool]):
    """Shows the table; True where the user takes the recommended recipe.

    Args:
        board: of the dashboard.
        advised: the advice.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        ("enter", "dismiss(True)", "Take"),
        ("escape", "dismiss(False)", "Close"),
        Binding("q", "dismiss(False)", "Close", id="view.back"),
        Binding("a", "dismiss(False)", "Close", id="form.advice"),
    ]

    def __init__(self, board: Board, advised: AdvisedRecipe) -> None:
        super().__init__()
        self._board = board
        self._advised = advised

    def compose(self) -> ComposeResult:
        """Lay out the table and the verdict."""
        glyphs = self._board.glyphs
        with VerticalScroll(id="advice") as box:
            box.border_title = Content(glyphs.line("Advice for this recipe"))
            box.border_subtitle = Content("enter Take the recommended recipe  esc Close")
            yield Static(id="advice-table")
            yield Static(glyphs.text(Text(f"\n{clean(self._advised.table.verdict)}", GREEN)))

    def on_resize(self) -> None:
        """Cut the lines of the table at the new width: its last column matters least."""
        self.call_after_refresh(self._draw)

    def _draw(self) -> None:
        table, drawn = self._advised.table, self.query_one("#advice-table", Static)
        best = self._advised.recommended  # marked as the current row, as enter takes it
        marks = (">" if row.key == best else "" for row in table.rows)
        rows = [(mark, *texts) for mark, texts in zip(marks, table.texts(), strict=True)]
        lines = columns([("", *table.head()), *rows]).splitlines()
        head, *rest = (cut(clean(line), max(1, drawn.size.width)) for line in lines)
        text = Text.assemble((head, MUTED), "\n", "\n".join(rest))
        drawn.update(self._board.glyphs.text(text))
