"""A list whose chosen row has a mark before it, so that it is seen without colours."""

from __future__ import annotations

from rich.segment import Segment
from textual.strip import Strip
from textual.widgets import OptionList

from edgefed.tui.look.symbols import Glyphs

_MARK = ">"


class CursorList(OptionList):
    """Rows of one line that begin with a blank, which is the place of the mark."""

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(id=id, compact=True)
        self._glyphs = glyphs

    def render_line(self, y: int) -> Strip:
        """Return a row, the chosen one with the mark."""
        line = super().render_line(y)
        if self.highlighted is None or self.scroll_offset.y + y != self.highlighted:
            return line
        style = next((segment.style for segment in line), None)
        mark = Strip([Segment(self._glyphs.line(_MARK), style)])
        return Strip.join([mark, line.crop(1)])
