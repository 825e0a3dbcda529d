"""Show the reason why a dashboard does not start, in its place."""

from __future__ import annotations

from rich.text import Text
from textual.app import App, ComposeResult
from textual.widgets import Static

from edgefed.errors import EdgeFedError
from edgefed.tui.look.text_format import clean


class FailureApp(App[None]):
    """An error with its hint until it is closed.

    Args:
        error: to show.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = "Static { padding: 1 2; }"

    def __init__(self, error: EdgeFedError) -> None:
        super().__init__()
        self._error = error

    def compose(self) -> ComposeResult:
        """Lay out the text."""
        error = self._error
        lines = [f"edgefed: error: {error.message}  [{error.code}]"]
        lines += [f"  try: {error.hint}"] if error.hint else []
        lines += ["", "Reload the page to try again."]
        yield Static(Text("\n".join(clean(line) for line in lines)))
