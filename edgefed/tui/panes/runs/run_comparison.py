"""The table of some runs side by side: settings that differ, then result and cost of each."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from edgefed.events.history.run_comparison import ALGORITHM, Comparison, Row
from edgefed.tui.look.text_format import clean, cut_middle
from edgefed.tui.look.theme import MUTED
from edgefed.tui.panes.base.compared_runs import ComparedRunsPane, named
from edgefed.tui.panes.base.rows import RowsPane
from edgefed.tui.state.display_state import Shown

_FIRST = (13, 30)
"""Least and largest width of the first column: names of results and keys of settings."""

_COLUMN = 26
"""Largest width of a run's column."""

_GAP = 2


class RunComparisonPane(RowsPane[Row], ComparedRunsPane):
    """One row for each setting that differs and for each result."""

    def heading(self, shown: Shown) -> str:
        """Return the number of settings that differ."""
        if self.comparison is None:
            return "Comparison"
        if len(self.comparison.runs) < 2:
            return "Result"
        return f"Comparison  settings that differ: {len(self.comparison.settings)}"

    def head(self, shown: Shown, width: int) -> Text:
        """Return the letter and the id of each run."""
        assert self.comparison is not None  # without one the pane shows why
        return _head(self.comparison, _widths(_rows(self.comparison), width))

    def footing(self, shown: Shown) -> str:
        """Return the keys to see the other rows, or why the runs could not be read again."""
        text, as_of = super().footing(shown), ComparedRunsPane.footing(self, shown)
        return f"{clean(self.problem.splitlines()[0])} Runs {as_of}" if as_of else text

    def items(self, shown: Shown) -> list[Row]:
        """Return all settings that differ, then all results."""
        return _rows(self.comparison) if self.comparison is not None else []

    def rows(self, shown: Shown, width: int, items: Sequence[Row]) -> list[Text]:
        """Return the lines of some of them, in equally wide columns."""
        widths = _widths(self.items(shown), width)
        return [_line(row, widths) for row in items]

    def noun(self) -> str:
        """Return the noun for a row."""
        return "values"

    def keys(self) -> str:
        """Return the key to go back."""
        return "esc Back"


def _rows(comparison: Comparison) -> list[Row]:
    settings, results = comparison.differences(), comparison.results()
    if any(row[0] == ALGORITHM for row in settings):
        results = [row for row in results if row[0] != "algorithm"]
    return [*settings, *results]


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
