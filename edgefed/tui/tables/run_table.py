"""The table of runs: one row for each, with a mark before those to compare."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.text import Text
from textual.widgets import DataTable

from edgefed.events.history.known_runs import RunRow
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.theme import SKY
from edgefed.tui.tables.run_columns import PADDING, columns_for

_MARK = "▶"
_MARK_WIDTH = 1


class RunTable(DataTable[Text]):
    """One row for each run; the row's key is the run's id."""

    BINDINGS = bindings_of("table")

    def __init__(self, glyphs: Glyphs, *, id: str) -> None:  # noqa: A002
        super().__init__(
            id=id, cursor_type="row", zebra_stripes=False, cursor_foreground_priority="renderable"
        )
        self._glyphs = glyphs

    @property
    def selected(self) -> str | None:
        """The id of the run under the cursor, None without rows."""
        if not 0 <= self.cursor_row < self.row_count:
            return None
        return self.ordered_rows[self.cursor_row].key.value

    def show(
        self, runs: Sequence[RunRow], marked: Sequence[str], width: int, now: datetime
    ) -> None:
        """Show these runs, in this order, in ``width`` cells; the cursor stays on its run."""
        selected, top = self.selected, self.scroll_y
        columns = columns_for(width - _MARK_WIDTH - PADDING)
        self.clear(columns=True)
        self.add_column(Text(), width=_MARK_WIDTH, key="mark")
        for column in columns:
            self.add_column(self._glyphs.text(column.head()), width=column.width, key=column.key)
        for run in {run.run: run for run in runs}.values():
            mark = Text(self._glyphs.line(_MARK) if run.run in marked else " ", f"bold {SKY}")
            cells = (self._glyphs.text(column.content(run, now)) for column in columns)
            self.add_row(mark, *cells, key=run.run)
        if selected is not None and selected in self.rows:
            self.move_cursor(row=self.get_row_index(selected), animate=False, scroll=False)
            self.scroll_to(y=top, animate=False)
