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

from edgefed.events.base.method_tables import MethodTable
from edgefed.terminal.console import columns
from edgefed.tui.look.text_format import clean
from edgefed.tui.look.theme import GREEN, MUTED
from edgefed.tui.screens.board import Board


class AdviceScreen(ModalScreen[bool]):
    """Shows the table; True where the user takes the recommended recipe.

    Args:
        board: of the dashboard.
        table: of the advice.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        ("enter", "dismiss(True)", "Take"),
        ("escape", "dismiss(False)", "Close"),
        Binding("q", "dismiss(False)", "Close", id="view.back"),
        Binding("a", "dismiss(False)", "Close", id="form.advice"),
    ]

    def __init__(self, board: Board, table: MethodTable) -> None:
        super().__init__()
        self._board = board
        self._table = table

    def compose(self) -> ComposeResult:
        """Lay out the table and the verdict."""
        glyphs, table = self._board.glyphs, self._table
        head, *rows = columns([table.head(), *table.texts()]).splitlines()
        text = Text.assemble((f"{clean(head)}\n", MUTED), no_wrap=True)
        text.append("\n".join(clean(row) for row in rows))
        with VerticalScroll(id="advice") as box:
            box.border_title = Content(glyphs.line("Advice for this recipe"))
            box.border_subtitle = Content("enter Take the recommended recipe  esc Close")
            yield Static(glyphs.text(text))
            yield Static(glyphs.text(Text(f"\n{clean(table.verdict)}", GREEN)))
