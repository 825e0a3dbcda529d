"""The classes of the last evaluation: how many samples of each are predicted right."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from edgefed.events.base.evaluation_views import TestPlace
from edgefed.tui.look.text_format import bar, clean, cut
from edgefed.tui.look.theme import MUTED, ORANGE, RULE, SKY, VERMILLION
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.panes.base.rows import RowsPane
from edgefed.tui.state.class_test import ClassRow, ClassTest, class_test
from edgefed.tui.state.display_state import Shown

NO_TEST = (
    "No counts by class yet: a run has them once a round is evaluated, unless its recipe has"
    " evaluation.confusion = false."
)

_NAMES = (7, 16)
"""Least and largest width of a class."""

_BAR = 10
_BARS, _SCORES = 48, 76
"""Cells from which a row has samples and a bar, and from which it has precision and F1."""

_LOW = 0.5
"""Recall below which a class is marked."""

_NAMED = 3
"""Classes that the heading names."""


class ClassPane(Pane):
    """The common part of panes about an evaluation: place of the test, or why there is none."""

    absent = NO_TEST
    """Text before the first evaluation."""

    place: TestPlace = "coordinator"
    """Whose test is shown where there are two."""

    test: ClassTest | None = None
    """The test that is shown; None before the first one."""

    def show(self, shown: Shown) -> None:
        """Take a new drawing."""
        views = shown.snapshot.confusions if shown.snapshot else ()
        matching = [view for view in views if view.place == self.place] or list(views)
        names = shown.run.class_names if shown.run else ()
        self.test = class_test(matching[0], names) if matching else None
        super().show(shown)

    def nothing(self, shown: Shown) -> str:
        """Return that there is no run, or no evaluation yet."""
        return super().nothing(shown) or ("" if self.test else self.absent)


class ClassTablePane(RowsPane[ClassRow], ClassPane):
    """A row for each class; the heading names the worst."""

    leads = True

    in_order = False
    """Whether the classes stand by label; otherwise the worst is first."""

    def heading(self, shown: Shown) -> str:
        """Return the classes that are never right, or else the worst one."""
        return f"Classes  {clean(worst_in_words(self.test))}" if self.test else "Classes"

    def keys(self) -> str:
        """Return the keys that change the order or the place."""
        if self.shown is None or self.shown.snapshot is None:
            return ""
        more = ("classes.place",) if len(self.shown.snapshot.confusions) > 1 else ()
        return self.shown.keys.hint("classes.order", *more)

    def show(self, shown: Shown) -> None:
        """Take a new drawing; a class that is never right is highlighted."""
        super().show(shown)
        self.set_class(self.test is not None and bool(self.test.never), "-alarm")

    def noun(self) -> str:
        """Return the noun for the items."""
        return "classes"

    def head(self, shown: Shown, width: int) -> Text:
        """Return the columns."""
        names = self._names()
        if width < _BARS:
            return Text(f"{'CLASS':<{names - 1}}RECALL MISTAKEN FOR", MUTED)
        numbers = f"{'SAMPLES':>8} {'RECALL':>6} {'':<{_BAR}}"
        if width >= _SCORES:
            numbers += f" {'PRECISION':>9} {'F1':>5}"
        return Text(f"{'CLASS':<{names}}{numbers}  MISTAKEN FOR", MUTED)

    def items(self, shown: Shown) -> Sequence[ClassRow]:
        """Return the classes that occur."""
        if self.test is None:
            return ()
        return self.test.by_label if self.in_order else self.test.rows

    def rows(self, shown: Shown, width: int, items: Sequence[ClassRow]) -> list[Text]:
        """Return a row for each class."""
        return [_row(row, self._names(), width) for row in items]

    def _names(self) -> int:
        longest = max((len(row.name) for row in self.test.rows), default=0) if self.test else 0
        return min(_NAMES[1], max(_NAMES[0], longest))


def worst_in_words(test: ClassTest) -> str:
    """Return the classes that are never right, or else the worst one."""
    never = [row.name for row in test.never]
    if never:
        more = f" and {len(never) - _NAMED} more" if len(never) > _NAMED else ""
        return f"never right: {', '.join(never[:_NAMED])}{more}"
    worst = test.rows[0] if test.rows else None
    return (
        "" if worst is None or worst.recall is None else f"worst: {worst.name} {worst.recall:.3f}"
    )


def recall_colour(recall: float | None) -> str:
    """Return the colour of a share of right predictions."""
    if recall is None:
        return MUTED
    return VERMILLION if recall == 0 else ORANGE if recall < _LOW else SKY


def _row(row: ClassRow, names: int, width: int) -> Text:
    colour = recall_colour(row.recall)
    line = Text(f"{cut(clean(row.name), names):<{names}}", "bold" if row.recall == 0 else "")
    written = "" if colour == SKY else colour
    if width < _BARS:
        line.append(f" {_score(row.recall, 2):>4} ", written)
    else:
        full, empty = bar(row.recall or 0.0, _BAR)
        line.append(f"{row.samples:>8}").append(f" {_score(row.recall):>6} ", written)
        line.append(full, colour).append(empty, RULE)
        if width >= _SCORES:
            line.append(f" {_score(row.precision):>9} {_score(row.f1):>5}", MUTED)
        line.append("  ")
    if row.mistaken:
        share = f" {row.mistaken * 100:.0f} %"
        room = max(1, width - line.cell_len - len(share))
        line.append(f"{cut(clean(row.mistaken_for), room)}{share}", written)
    return line


def _score(value: float | None, digits: int = 3) -> str:
    return "—" if value is None else f"{value:.{digits}f}"
