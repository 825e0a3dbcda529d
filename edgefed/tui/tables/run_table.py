"""The table of runs: its columns, a row for each run, and letters before those to compare."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from rich.text import Text
from textual.widgets import DataTable

from edgefed.events.history.known_runs import RunRow
from edgefed.terminal.units import age, duration, size
from edgefed.tui.keys.actions import bindings_of
from edgefed.tui.look.symbols import RUN_LOOKS, Glyphs
from edgefed.tui.look.text_format import clean, cut_middle, moment
from edgefed.tui.look.theme import MUTED, SKY

PADDING = 2
"""Cells that the table adds to every column."""

_WIDEST = {"run": 16, "name": 28}
"""Cells of ids and names where there is room."""


@dataclass(frozen=True)
class RunColumn:
    """One column.

    Attributes:
        key: stable name.
        width: cells of its content, without the table's padding.
        rank: the highest numbers leave first when the screen is narrow.
        cell: its content for a run, at a time.
        right: whether it is flush right, as numbers are.
    """

    key: str
    label: str
    width: int
    rank: int
    cell: Callable[[RunRow, datetime], Text]
    right: bool = False

    def head(self) -> Text:
        """Return the heading."""
        return self._aligned(Text(self.label))

    def content(self, run: RunRow, now: datetime) -> Text:
        """Return the cell of a run."""
        text = self.cell(run, now)
        text.plain = cut_middle(text.plain, self.width)
        return self._aligned(text)

    def _aligned(self, text: Text) -> Text:
        text.justify = "right" if self.right else "left"
        text.no_wrap, text.overflow = True, "ellipsis"
        return text


def columns_for(width: int, runs: Sequence[RunRow] = ()) -> tuple[RunColumn, ...]:
    """Return the columns that fit ``width`` cells; ids and names get the rest.

    Numbers of rounds are not cut, so that this column is as wide as those of ``runs``.
    """
    longest = max((len(_rounds(run)) for run in runs), default=0)
    columns = [
        replace(column, width=max(column.width, longest)) if column.key == "round" else column
        for column in RUN_COLUMNS
    ]
    kept: set[str] = set()
    left = width
    for column in sorted(columns, key=lambda column: column.rank):
        if column.width + PADDING > left:
            break
        left -= column.width + PADDING
        kept.add(column.key)
    return tuple(_widened((c for c in columns if c.key in kept), left))


def _widened(columns: Iterator[RunColumn], more: int) -> Iterator[RunColumn]:
    for column in columns:
        width = min(_WIDEST.get(column.key, column.width), column.width + more)
        more -= width - column.width
        yield replace(column, width=width)


def _state(run: RunRow, now: datetime) -> Text:
    del now
    look = next((look for status, look in RUN_LOOKS.items() if status == run.status), None)
    if look is None:  # of a newer coordinator
        return Text(clean(run.status), MUTED)
    return Text(f"{look.symbol} {run.status}", look.colour)


def _started(run: RunRow, now: datetime) -> Text:
    when = moment(run.created)
    return Text(age((now - when).total_seconds()) if when else "", MUTED)


def _plain(cell: Callable[[RunRow], str]) -> Callable[[RunRow, datetime], Text]:
    return lambda run, now: Text(clean(cell(run)))


def _rounds(run: RunRow) -> str:
    return f"{run.round}/{run.rounds}"


def _accuracy(run: RunRow) -> str:
    return "" if run.accuracy is None else f"{run.accuracy:.3f}"


RUN_COLUMNS: tuple[RunColumn, ...] = (
    RunColumn("run", "RUN", 11, 0, _plain(lambda run: run.run)),
    RunColumn("name", "NAME", 8, 5, _plain(lambda run: run.name)),
    RunColumn("algorithm", "ALGORITHM", 9, 3, _plain(lambda run: run.algorithm)),
    RunColumn("state", "STATE", 11, 1, _state),
    RunColumn("round", "ROUND", 7, 4, _plain(_rounds), right=True),
    RunColumn("accuracy", "ACCURACY", 8, 2, _plain(_accuracy), right=True),
    RunColumn("bytes", "BYTES", 9, 7, _plain(lambda run: size(run.bytes_up + run.bytes_down)),
              right=True),
    RunColumn("time", "TIME", 6, 6, _plain(lambda run: duration(run.seconds, 1)), right=True),
    RunColumn("started", "STARTED", 7, 8, _started, right=True),
)  # fmt: skip
"""All columns, in the order of the screen."""


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
        self, runs: Sequence[RunRow], marks: Mapping[str, str], width: int, now: datetime
    ) -> None:
        """Show these runs, in this order, in ``width`` cells; the cursor stays on its run.

        Args:
            runs: the rows.
            marks: letters of the marked runs, by their ids.
            width: cells of a row.
            now: for ages.
        """
        selected, top = self.selected, self.scroll_y
        columns = columns_for(width - _MARK_WIDTH - PADDING, runs)
        self.clear(columns=True)
        self.add_column(Text(), width=_MARK_WIDTH, key="mark")
        for column in columns:
            self.add_column(self._glyphs.text(column.head()), width=column.width, key=column.key)
        for run in {run.run: run for run in runs}.values():
            mark = Text(marks.get(run.run, " "), f"bold {SKY}")
            cells = (self._glyphs.text(column.content(run, now)) for column in columns)
            self.add_row(mark, *cells, key=run.run)
        if selected is not None and selected in self.rows:
            self.move_cursor(row=self.get_row_index(selected), animate=False, scroll=False)
            self.scroll_to(y=top, animate=False)
