"""The newest events, one line each; accepted replies, of which every round has many, on demand."""

from __future__ import annotations

from rich.text import Text

from edgefed.events.base.snapshot import LineView
from edgefed.tui.look.symbols import MARK_COLOURS, Glyphs
from edgefed.tui.look.text_format import clean
from edgefed.tui.look.theme import MUTED
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown

_ALL = "overview.events"


class EventsPane(Pane):
    """As many lines as fit, the newest on top, without accepted replies unless requested."""

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self.routine = False

    def heading(self, shown: Shown) -> str:
        """Return the pane's name."""
        return "Events"

    def footing(self, shown: Shown) -> str:
        """Return the key that shows accepted replies too, or hides them."""
        hint = f"{shown.keys.label(_ALL)} Fewer" if self.routine else shown.keys.hint(_ALL)
        return super().footing(shown) or hint

    def nothing(self, shown: Shown) -> str:
        """Return a notice before the first shown event."""
        if self._lines(shown):
            return ""
        some = shown.snapshot is not None and bool(shown.snapshot.lines)
        replies = f"Nothing but accepted replies; {shown.keys.label(_ALL)} shows them."
        return replies if some else "Nothing has happened yet."

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the lines."""
        rows = [_row(shown, line, width) for line in self._lines(shown)[:height]]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(rows)

    def _lines(self, shown: Shown) -> list[LineView]:
        lines = shown.snapshot.lines if shown.snapshot else ()
        return [line for line in lines if self.routine or not line.routine]


def _row(shown: Shown, line: LineView, width: int) -> Text:
    row = Text.assemble((shown.time_of(line.time), MUTED), "  ")
    row.append(clean(line.mark)[:1], MARK_COLOURS.get(line.mark, MUTED))
    row.append(f"  {clean(line.text)}")
    row.truncate(width, overflow="ellipsis")
    return row
