"""The newest events, one line each."""

from __future__ import annotations

from rich.text import Text

from edgefed.events.snapshot import LineView
from edgefed.tui.display_state import Shown
from edgefed.tui.panes.pane import Pane
from edgefed.tui.symbols import MARK_COLOURS
from edgefed.tui.text_format import clean
from edgefed.tui.theme import MUTED


class EventsPane(Pane):
    """As many lines as fit, the newest on top."""

    def heading(self, shown: Shown) -> str:
        """Return the pane's name."""
        return "Events"

    def nothing(self, shown: Shown) -> str:
        """Return what to do before anything happened."""
        if shown.snapshot and shown.snapshot.lines:
            return ""
        return "Nothing has happened yet."

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the lines."""
        lines = shown.snapshot.lines[:height] if shown.snapshot else ()
        rows = [_row(shown, line, width) for line in lines]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(rows)


def _row(shown: Shown, line: LineView, width: int) -> Text:
    row = Text.assemble((shown.time_of(line.time), MUTED), "  ")
    row.append(clean(line.mark)[:1], MARK_COLOURS.get(line.mark, MUTED))
    row.append(f"  {clean(line.text)}")
    row.truncate(width, overflow="ellipsis")
    return row
