"""The line to type a jump target, with the available names or a hint."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.theme import MUTED, ORANGE, SKY
from edgefed.tui.state.jumping import JumpTargets

_BY_NAME = JumpTargets()


class JumpScreen(ModalScreen[str | None]):
    """Answers with the app's call for the chosen target; None for none."""

    AUTO_FOCUS = "#where"
    BINDINGS: ClassVar[list[BindingType]] = [
        ("escape", "leave", "Cancel"),
        ("tab", "complete", "Complete"),
    ]

    def __init__(self, glyphs: Glyphs, targets: JumpTargets = _BY_NAME) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._targets = targets

    def compose(self) -> ComposeResult:
        """Lay out names and line."""
        with Vertical(id="jump"):
            yield Static(self._names(""), id="jump-names")
            with Horizontal(id="jump-line"):
                yield Static(self._targets.mark, id="jump-mark", markup=False)
                yield Input(id="where", compact=True, select_on_focus=False)

    @on(Input.Changed, "#where")
    def narrow(self, event: Input.Changed) -> None:
        """Show the matching names, or why there is none."""
        self.query_one("#jump-names", Static).update(self._names(event.value))

    @on(Input.Submitted, "#where")
    def go(self, event: Input.Submitted) -> None:
        """Go there; stay where the name is unknown."""
        if not event.value.strip():
            self.dismiss(None)
            return
        call, _ = self._targets.jump_to(event.value)
        if call is not None:
            self.dismiss(call)

    def action_complete(self) -> None:
        """Write the rest of the first name that begins so."""
        field = self.query_one("#where", Input)
        names = self._targets.completions(field.value)
        if names:
            field.value = names[0]
            field.cursor_position = len(field.value)

    def action_leave(self) -> None:
        """Go nowhere."""
        self.dismiss(None)

    def _names(self, text: str) -> Text:
        names = self._targets.completions(text)
        call, why = self._targets.jump_to(text)
        if text.strip() and call is None and not names:
            return self._glyphs.text(Text(why, ORANGE))
        line = Text("" if names else self._targets.hint, MUTED, no_wrap=True, overflow="ellipsis")
        for number, name in enumerate(names):
            first = number == 0 and bool(text.strip())
            line.append(f"{name}  ", f"bold {SKY}" if first else MUTED)
        return self._glyphs.text(line)
