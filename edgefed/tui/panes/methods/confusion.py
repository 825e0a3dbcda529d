"""The confusion matrix of the last evaluation: cells where they fit, otherwise confused pairs."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from edgefed.tui.look.text_format import clean, cut
from edgefed.tui.look.theme import GREEN, MUTED, ORANGE, VERMILLION
from edgefed.tui.panes.base.rows import RowsPane
from edgefed.tui.panes.methods.classes import ClassPane
from edgefed.tui.state.class_test import ClassRow, ClassTest, Pair
from edgefed.tui.state.display_state import Shown

_CELLS = (4, 3)
"""Widths of a cell, the first that fits."""

_NAMES = (6, 14)
"""Least and largest width of a true class."""

_PAIR = 16
"""Largest width of a class in a pair."""

_OFTEN, _VERY_OFTEN = 0.1, 0.25
"""Shares of a class from which a mistake is marked."""


class ConfusionPane(RowsPane[ClassRow | Pair], ClassPane):
    """Rows are true labels, columns predicted ones; a cell is the percentage of the row."""

    absent = "Nothing is counted yet."

    def heading(self, shown: Shown) -> str:
        """Return the meaning of rows and columns."""
        test = self.test
        if test is None:
            return "Confusion"
        if not self._cell(test):
            return "Confusion  the most frequent mistakes"
        return self.fitting(
            "Confusion  % of a true class, by prediction", "Confusion  % of the true class"
        )

    def nothing(self, shown: Shown) -> str:
        """Return why there is no matrix."""
        if self.test is not None and self.test.matrix is None:
            return "Of more than 200 classes, mistakes are not counted by pairs."
        return super().nothing(shown)

    def footing(self, shown: Shown) -> str:
        """Return the range of pairs on the screen, or the place of this test."""
        text, test = super().footing(shown), self.test
        if text or test is None:
            return text
        return self.fitting(test.summary, f"round {test.round}, test of the {test.place}")

    def noun(self) -> str:
        """Return the noun for the items, where they are too many."""
        return "mistakes"

    def head(self, shown: Shown, width: int) -> Text:
        """Return the predicted labels, or the columns of the pairs."""
        test = self.test
        if test is None:
            return Text()
        cell = self._cell(test)
        if not cell:
            true = _pair_width(test, width)
            return Text(f"{'TRUE':<{true}} {'PREDICTED':<{true}} {'SAMPLES':>7}  SHARE", MUTED)
        names = _names(test, width, cell)
        numbers = "".join(f"{row.label:>{cell}}" for row in test.by_label)
        return Text(f"{'TRUE':<{names}}{numbers}", MUTED)

    def items(self, shown: Shown) -> Sequence[ClassRow | Pair]:
        """Return the classes, or the pairs that are confused."""
        if self.test is None:
            return ()
        return self.test.by_label if self._cell(self.test) else self.test.pairs

    def rows(self, shown: Shown, width: int, items: Sequence[ClassRow | Pair]) -> list[Text]:
        """Return a row for each class, or for each pair."""
        test = self.test
        if test is None or test.matrix is None:
            return []
        cell = self._cell(test)
        names = _names(test, width, cell) if cell else _pair_width(test, width)
        return [
            _pair(item, names)
            if isinstance(item, Pair)
            else _matrix_row(test, item, test.matrix[item.label], names, cell)
            for item in items
        ]

    def _cell(self, test: ClassTest) -> int:
        """Return the width of a cell; 0 where the matrix does not fit."""
        count = len(test.rows)
        if count + 1 > self.size.height:
            return 0
        return next((cell for cell in _CELLS if count * cell + _NAMES[0] <= self.size.width), 0)


def _names(test: ClassTest, width: int, cell: int) -> int:
    longest = max((len(row.name) + _digits(test) + 2 for row in test.rows), default=0)
    return max(_NAMES[0], min(_NAMES[1], longest, width - cell * len(test.rows)))


def _digits(test: ClassTest) -> int:
    return len(str(max((row.label for row in test.rows), default=0)))


def _matrix_row(
    test: ClassTest, row: ClassRow, counts: Sequence[int], names: int, cell: int
) -> Text:
    """Return the line of a class: its number, its name, and its shares in percent."""
    name = f"{row.label:>{_digits(test)}} {clean(row.name)}"
    line = Text(f"{cut(name, names):<{names}}")
    for other in test.by_label:
        count, right = counts[other.label], row.label == other.label
        text = "0" if right and row.samples and not count else _percent(count, row.samples)
        line.append(f"{text:>{cell}}", _colour(count, row.samples, right=right))
    return line


def _percent(count: int, total: int) -> str:
    """Return a share in percent; 100 only for all, and a dot for none."""
    if not count:
        return "·"
    return "100" if count == total else f"{min(99, round(100 * count / total))}"


def _colour(count: int, total: int, *, right: bool) -> str:
    if right:
        return GREEN if count else VERMILLION if total else MUTED
    return _mistake_colour(count / total if total else 0.0)


def _mistake_colour(share: float) -> str:
    if share < _OFTEN:
        return MUTED
    return VERMILLION if share >= _VERY_OFTEN else ORANGE


def _pair_width(test: ClassTest, width: int) -> int:
    longest = max((len(row.name) for row in test.rows), default=0)
    return max(9, min(_PAIR, longest, (width - 16) // 2))


def _pair(pair: Pair, width: int) -> Text:
    names = (f"{cut(clean(name), width):<{width}}" for name in (pair.true, pair.predicted))
    line = Text(" ".join(names)).append(f" {pair.samples:>7}")
    colour = ORANGE if pair.share >= _OFTEN else MUTED
    return line.append(
        f" {pair.share * 100:>4.0f} %", VERMILLION if pair.share >= _VERY_OFTEN else colour
    )
