"""The model of a run: its path, and a command that predicts with it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from edgefed.events.history.known_runs import RunDetails
from edgefed.files.writing import file_exists
from edgefed.tui.look.text_format import clean
from edgefed.tui.look.theme import MUTED, SKY
from edgefed.tui.screens.board import Board

NO_MODEL = "{run} has no model yet: a run writes it when it ends."

_ELSEWHERE = "Both are for the coordinator's machine; this one does not have the file."


class RunModelScreen(ModalScreen[None]):
    """Shows the path and the command; a key copies the command.

    Args:
        board: of the dashboard.
        run: has a model.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "dismiss", "Close"),
        Binding("q", "dismiss", "Close", id="view.back"),
        Binding("e", "dismiss", "Close", id="runs.model"),
        Binding("y", "copy", "Copy", id="view.copy"),
    ]

    def __init__(self, board: Board, run: RunDetails) -> None:
        super().__init__()
        self._board = board
        self._run = run
        self._command = board.watch.commands.predict(run.run)

    def compose(self) -> ComposeResult:
        """Lay out the path and the command."""
        keys, glyphs, path = self._board.keys, self._board.glyphs, self._run.model_path
        text = Text.assemble(("model\n", MUTED), f"{clean(path)}\n\n", ("predict\n", MUTED))
        text.append(clean(self._command), SKY)
        if not file_exists(Path(path)):
            text.append(f"\n\n{_ELSEWHERE}", MUTED)
        with VerticalScroll(id="run-model") as box:
            box.border_title = Content(glyphs.line(f"Model of run {clean(self._run.run)}"))
            copies = f"{keys.label('view.copy')} copies the command"
            box.border_subtitle = Content(glyphs.line(f"{copies}  esc Close"))
            yield Static(glyphs.text(text))

    def action_copy(self) -> None:
        """Copy the command."""
        self.app.copy_to_clipboard(self._command)
        self.notify("Copied the command line.", markup=False)
