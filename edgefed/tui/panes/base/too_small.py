"""The message of a window that is too small for the dashboard."""

from __future__ import annotations

from textwrap import wrap

from rich.text import Text

from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown

LEAST = (80, 20)
"""Columns and lines that the screens need."""


class TooSmall(Pane):
    """Asks for a larger window."""

    def heading(self, shown: Shown) -> str:
        """Return nothing: the line has no border."""
        return ""

    def footing(self, shown: Shown) -> str:
        """Return nothing: the line has no border."""
        return ""

    def face(self, shown: Shown) -> None:
        """Return None: the line does not depend on the snapshot."""

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the message, in as many lines as it takes."""
        size = self.screen.size
        least = f"{LEAST[0]}x{LEAST[1]}"
        message = f"Please enlarge the window to {least} (it is {size.width}x{size.height})."
        return Text("\n".join(wrap(message, max(1, size.width))))
