"""The table of some runs side by side: what each reached at what cost, then their settings."""

from __future__ import annotations

from rich.text import Text

from edgefed.events.run_comparison import Comparison, Row
from edgefed.tui.display_state import Shown
from edgefed.tui.panes.compared_runs import ComparedRunsPane, named
from edgefed.tui.text_format import clean, cut_middle
from edgefed.tui.theme import MUTED

_FIRST = (13, 30)
"""Least and largest width of the first column: names of results and keys of settings."""

_COLUMN = 26
"""Largest width of a run's column."""

_GAP = 2


class RunComparisonPane(ComparedRunsPane):
    """One row for each result and for each setting that differs; scrolls by rows."""

    top = 0
    """The row below the head."""

    def heading(self, shown: Shown) -> str:
        """Return how many settings differ."""
        if self.comparison is None:
            return "Comparison"
        if len(self.comparison.runs) < 2:
            return "Result"
        return f"Comparison  settings that differ: {len(self.comparison.settings)}"

    def footing(self, shown: Shown) -> str:
        """Return how to see the rows that do not fit, and how to go back."""
        keys = "j k Scroll  esc Back" if self._count() > self._room() else "esc Back"
        return "  ".join(filter(None, (self._unread(shown), keys)))

    def _unread(self, shown: Shown) -> str:
        """Return why the runs could not be read again, and from when they are."""
        old = super().footing(shown)
        return f"{clean(self.problem.splitlines()[0])} Runs {old}" if old else ""

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the head and the rows that fit."""
        if self.comparison is None:
            return Text()
        rows = _rows(self.comparison)
        widths = _widths(rows, width)
        self.top = max(0, min(self.top, len(rows) - self._room()))
        lines = [_head(self.comparison, widths)]
        lines += [_line(row, widths) for row in rows[self.top : self.top + self._room()]]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)

    def scroll_rows(self, rows: int) -> None:
        """Move by rows."""
        self.top = max(0, min(self.top + rows, self._count() - self._room()))

    def _count(self) -> int:
        return len(_rows(self.comparison)) if self.comparison is not None else 0

    def _room(self) -> int:
        """Return how many rows fit below the head."""
        return max(1, self.size.height - 1)


def _rows(comparison: Comparison) -> list[Row]:
    return [*comparison.results(), *comparison.differences()]


def _widths(rows: list[Row], width: int) -> tuple[int, int]:
    """Return the widths of the first column and of each run's."""
    longest = max(len(row[0]) for row in rows)
    first = max(_FIRST[0], min(_FIRST[1], longest, width // 3))
    runs = len(rows[0]) - 1
    return first, max(3, min(_COLUMN, (width - first) // runs - _GAP))


def _head(comparison: Comparison, widths: tuple[int, int]) -> Text:
    line = Text(" " * widths[0])
    for letter, colour, run in named(comparison):
        name = f"{letter} {cut_middle(run, widths[1] - 2)}"
        line.append(" " * _GAP).append(name.ljust(widths[1]), f"bold {colour}")
    return line


def _line(row: Row, widths: tuple[int, int]) -> Text:
    line = Text(f"{cut_middle(clean(row[0]), widths[0]):<{widths[0]}}", MUTED)
    same = all(cell == row[1] for cell in row[1:])
    for cell in row[1:]:
        shown = f"{cut_middle(clean(cell), widths[1]):<{widths[1]}}"
        line.append(" " * _GAP).append(shown, "" if same else "bold")
    return line
