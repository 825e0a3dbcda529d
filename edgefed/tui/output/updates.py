"""The adapter to Textual's updates of the screen; the only code that knows their insides.

Textual has no public interface for its output. This was written for Textual 8.2, and
``tests/tui/output/test_updates.py`` compares it with Textual's own output.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.color import ColorSystem
from rich.console import (
    COLOR_SYSTEMS,
    Console,
    ConsoleOptions,
    RenderableType,
    RenderResult,
)
from rich.segment import Segment
from textual._compositor import ChopsUpdate, CompositorUpdate, LayoutUpdate
from textual.strip import Strip

from edgefed.tui.output.backlog import Backlog
from edgefed.tui.output.cells import Cells, cells_of


class ChangedCells(CompositorUpdate):
    """An update that writes only changed cells; it counts as written when it is rendered."""

    def __init__(self, cells: Cells, backlog: Backlog) -> None:
        self._cells = cells
        self._backlog = backlog

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del options
        yield Segment(self.render_segments(console))

    def render_segments(self, console: Console) -> str:
        """Return the bytes for the terminal."""
        del console
        text = self._cells.changes()
        return text + self._backlog.sent(len(text.encode()))


def taken(cells: Cells, update: RenderableType, console: Console) -> bool:
    """Change cells as an update of Textual says; return False for an unknown kind of update."""
    if not isinstance(update, LayoutUpdate | ChopsUpdate):
        return False
    system = COLOR_SYSTEMS.get(console.color_system or "", ColorSystem.TRUECOLOR)
    for x, y, strip in _placed(update):
        cells.put(x, y, cells_of(strip, system))
    return True


def _placed(update: LayoutUpdate | ChopsUpdate) -> Iterator[tuple[int, int, Strip]]:
    """Yield the strips of an update with column and line."""
    if isinstance(update, LayoutUpdate):
        for y, line in enumerate(update.strips, update.region.y):
            x = update.region.x
            for strip in line:
                yield x, y, strip
                x += strip.cell_length
        return
    for y, x1, x2 in update.spans:
        ends = update.chop_ends[y]
        for end, (x, chop) in zip(ends, update.chops[y].items(), strict=False):
            first, last = max(x, x1), min(end, x2)
            if chop is not None and first < last:
                yield first, y, chop.crop(first - x, last - x)
