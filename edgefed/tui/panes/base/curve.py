"""A curve over the rounds, with that of the run before, drawn with Braille dots line by line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

from edgefed.events.base.best_rounds import Best, Measure, best_of
from edgefed.events.base.snapshot import TEST_COUNTS, RoundView, Snapshot
from edgefed.terminal.units import tested_by
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.text_format import clean, cut_middle
from edgefed.tui.look.theme import MUTED
from edgefed.tui.panes.base.earlier_curve import (
    ABOVE,
    AFTER,
    BELOW,
    EARLIER,
    Frame,
    Point,
    earlier_lines,
    with_mark,
)
from edgefed.tui.panes.base.pane import Pane
from edgefed.tui.state.display_state import Shown

_NUMBER = 4
"""Cells of a number on the vertical axis."""

_AXIS = _NUMBER + 1
"""Cells left of the curve: a number and the axis."""

_TICKS_EVERY = 5
"""Lines between two numbers on the vertical axis."""

_BEST = "●"
"""Mark of the round with the best value."""

_NOT_COMPARED = "○"
"""Mark of a round that too few devices tested to compare it with others."""

SAMPLE = "⠒"
"""Character of this run's curve in the legend."""

CURVE_MARKS = {
    _BEST: "best round",
    _NOT_COMPARED: "too few devices tested",
    EARLIER: "the run before",
    f"{ABOVE}{BELOW}{AFTER}": "where it is outside this run's axes",
}
"""Meanings of the characters in a curve."""

_FLAT = 0.05
"""Half the height of the drawing when all values are equal."""


_LEAST_WITH_LEGEND = 6
"""Lines inside the border from which the runs are named."""

LAST_ROUNDS = 50
"""Rounds that are drawn when not all are."""


class CurvePane(Pane):
    """Accuracy or loss of each finished round; drawn again only for new points or a new size."""

    zoomed = False
    """Whether only the last rounds are drawn."""

    def __init__(self, glyphs: Glyphs, measure: Measure, colour: str) -> None:
        super().__init__(glyphs, id=measure)
        self._measure = measure
        self._colour = colour
        self._rows: tuple[tuple[object, ...], list[Strip]] | None = None

    def heading(self, shown: Shown) -> str:
        """Return the newest value and its change, shorter where the long form does not fit."""
        name, rounds = self._measure.capitalize(), self._rounds(shown)
        names = [name]
        if self.zoomed or (rounds and rounds[0].round > 1):
            count = LAST_ROUNDS if self.zoomed else len(rounds)
            names = [f"{name} of the last {count} rounds", f"{name}, last {count}", name]
        if not self.points(shown.snapshot):
            return names[0]
        forms = [form for name in names for form in self._forms(name, shown)]
        return next((form for form in forms if len(form) + 4 <= self.size.width), forms[-1])

    def _forms(self, name: str, shown: Shown) -> list[str]:
        """Return headings that begin with a name, the longest first."""
        points, rounds = self.points(shown.snapshot), self._rounds(shown)
        last = next(row for row in rounds if row.round == points[-1][0])
        counts = tested_by(last.model_dump(include=set(TEST_COUNTS)))
        heading = bare = f"{name}  {points[-1][1]:.3f}"
        tested = f"{heading} · {counts}" if counts else heading
        if len(points) > 1:
            heading += f" {points[-1][1] - points[-2][1]:+.3f}"
        best = self._best(shown)
        with_best = f"best {best.value:.3f} r{best.round}" if best else ""
        whole = " · ".join(filter(None, (heading, counts)))
        if not _is_partial(last):
            return [f"{whole}  {with_best}", f"{heading}  {with_best}", heading, bare]
        short = tested.replace(" of ", "/")  # for a narrow pane, which has room for devices only
        return [f"{whole}  {with_best}", whole, tested, short, short.rpartition(" · ")[0]]

    def _best(self, shown: Shown) -> Best | None:
        """Return the best value of the run."""
        early = shown.snapshot.early_best if shown.snapshot else ()
        return best_of((*early, *self._rounds(shown)), self._measure)

    def footing(self, shown: Shown) -> str:
        """Return the keys of the other curve, if only one fits, and of more or fewer rounds."""
        stale = super().footing(shown)
        if stale:
            return stale
        other, zoom = (shown.keys.label(f"overview.{name}") for name in ("curve", "zoom"))
        keys = []
        if self.screen.has_class("-narrow"):
            keys.append(f"{other} {'Loss' if self._measure == 'accuracy' else 'Accuracy'}")
        if self.zoomed or len(self.points(shown.snapshot)) > LAST_ROUNDS:
            rounds = "All rounds" if self.zoomed else f"Last {LAST_ROUNDS} rounds"
            keys.append(f"{zoom} {rounds}")
        return "  ".join(keys)

    def nothing(self, shown: Shown) -> str:
        """Return a notice before the end of the first round with this measure."""
        if self.points(shown.snapshot):
            return ""
        return f"Drawn from the first round that measures {self._measure}."

    @staticmethod
    def _rounds(shown: Shown) -> Sequence[RoundView]:
        return shown.snapshot.rounds if shown.snapshot else ()

    def points(self, snapshot: Snapshot | None) -> list[Point]:
        """Return round and value of every round that has one."""
        return points_of(snapshot.rounds, self._measure) if snapshot else []

    def previous(self, snapshot: Snapshot | None) -> list[Point]:
        """Return the same of the run before."""
        earlier = snapshot.previous if snapshot else None
        return points_of(earlier.rounds, self._measure) if earlier else []

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return the points as text; a change of it makes the pane redraw."""
        snapshot = shown.snapshot
        return Text(str((self._drawn_points(snapshot), self.previous(snapshot))))

    def _drawn_points(self, snapshot: Snapshot | None) -> list[Point]:
        """Return the points to draw of this run."""
        points = self.points(snapshot)
        return points[-LAST_ROUNDS:] if self.zoomed else points

    def _legend(self, snapshot: Snapshot | None) -> tuple[str, str]:
        """Return this run and the run before with their characters; empty without the latter."""
        if snapshot is None or snapshot.run is None or not self.previous(snapshot):
            return "", ""
        assert snapshot.previous is not None  # it has points
        this, earlier = clean(snapshot.run.run), clean(snapshot.previous.run)
        for after in (" before", ""):
            room = self.size.width - len(f"{SAMPLE}   {EARLIER} {after}")
            if len(this) + len(earlier) <= room:
                break
        else:
            this, earlier = (cut_middle(run, max(3, room // 2)) for run in (this, earlier))
        return f"{SAMPLE} {this}  ", f"{EARLIER} {earlier}{after}"

    def render_line(self, y: int) -> Strip:
        """Return one line of the drawing."""
        if self.shown is None or self.face(self.shown) is not None:
            return super().render_line(y)
        points = self._drawn_points(self.shown.snapshot)
        drawn = {at for at, _ in points}
        rounds = [row for row in self._rounds(self.shown) if row.round in drawn]
        marks = {at: _NOT_COMPARED for at, _ in points_of(_not_compared(rounds), self._measure)}
        best = self._best(self.shown)
        if best is not None and best.round in drawn:
            marks[best.round] = _BEST
        marked = [(point, marks[point[0]]) for point in points if point[0] in marks]
        before, legend = self.previous(self.shown.snapshot), self._legend(self.shown.snapshot)
        key = (self.size, self.rich_style, tuple(points), tuple(before), tuple(marked), legend)
        if self._rows is None or self._rows[0] != key:
            self._rows = (key, self._strips(points, before, marked, legend))
        rows = self._rows[1]
        return rows[y] if y < len(rows) else Strip.blank(self.size.width, self.rich_style)

    def _strips(
        self,
        points: list[Point],
        before: list[Point],
        marked: list[tuple[Point, str]],
        legend: tuple[str, str],
    ) -> list[Strip]:
        """Return the lines: the curve over that of the run before, with marks of some rounds."""
        has_legend = any(legend) and self.size.height >= _LEAST_WITH_LEGEND
        width, height = self.size.width - _AXIS - 1, self.size.height - 2 - has_legend
        if width < 4 or height < 2:
            return []
        frame = Frame(
            width, height, (points[0][0], points[-1][0]), value_range(points, self._measure)
        )
        lines = frame.drawn(points)
        for point, mark in marked:
            lines = with_mark(lines, mark, frame.cell(point))
        under = earlier_lines(before, frame, lines)
        axis, curve = (
            self.rich_style + Style(color=MUTED),
            self.rich_style + Style(color=self._colour),
        )
        rows = [self._strip((legend[0], curve), (legend[1], axis))] * has_legend
        rows += [
            self._strip((label, axis), *_overlaid(line, old, curve, axis))
            for label, line, old in zip(labels(frame.up, height), lines, under, strict=True)
        ]
        rows.append(self._strip((" " * _NUMBER + "└" + "─" * width, axis)))
        rows.append(self._strip((" " * _AXIS + rounds_below(frame.across, width), axis)))
        return rows

    def _strip(self, *parts: tuple[str, Style]) -> Strip:
        segments = [Segment(self.glyphs.line(text), style) for text, style in parts]
        return Strip(segments).adjust_cell_length(self.size.width, self.rich_style)


def points_of(rounds: Iterable[RoundView], measure: Measure) -> list[Point]:
    """Return round and value of every round that has one."""
    pairs = ((row.round, getattr(row, measure)) for row in rounds)
    return [(at, value) for at, value in pairs if value is not None and math.isfinite(value)]


def _not_compared(rounds: Iterable[RoundView]) -> list[RoundView]:
    return [row for row in rounds if not row.compared]


def _is_partial(row: RoundView) -> bool:
    """Whether only some of the devices, or of the labels, were tested."""
    return row.tested_devices < row.all_testers or row.tested_labels < row.all_labels


def _overlaid(line: str, under: str, style: Style, below: Style) -> list[tuple[str, Style]]:
    """Return a line of the curve, with the line below it where it is empty."""
    cells = [
        (cell, style) if cell != " " else (old, below)
        for cell, old in zip(line, under, strict=True)
    ]
    runs = groupby(cells, key=lambda cell: cell[1])
    return [("".join(cell for cell, _ in run), used) for used, run in runs]


def value_range(points: Sequence[Point], measure: Measure) -> tuple[float, float]:
    """Return the lowest and highest value of the axis, apart even when all points are equal."""
    values = [value for _, value in points]
    low, high = min(values), max(values)
    if high - low < _FLAT:
        low, high = (low + high) / 2 - _FLAT, (low + high) / 2 + _FLAT
    return max(0.0, low), min(1.0, high) if measure == "accuracy" else high


def labels(up: tuple[float, float], height: int) -> list[str]:
    """Return the vertical axis: a number on every fifth line, on the first and on the last."""
    low, high = up
    marked = {0, height - 1, *range(0, height - _TICKS_EVERY + 1, _TICKS_EVERY)}
    return [
        f"{_number(high - (high - low) * row / (height - 1))}┤"
        if row in marked
        else " " * _NUMBER + "│"
        for row in range(height)
    ]


def _number(value: float) -> str:
    for digits in (2, 1, 0):
        shown = f"{value:.{digits}f}"
        if len(shown) <= _NUMBER:
            return f"{shown:>{_NUMBER}}"
    return f"{value:.0e}".replace("e+0", "e")[:_NUMBER].rjust(_NUMBER)


def rounds_below(across: tuple[int, int], width: int) -> str:
    """Return the horizontal axis: the numbers of some rounds, the first and the last among them."""
    first, last = across
    step = max(1, math.ceil((last - first) / max(1, width // 7)))
    line = [" "] * width
    for number in [*range(first, last - step // 2, step), last]:
        share = (number - first) / (last - first) if last > first else 0.0
        label = str(number)
        at = min(round(share * (width - 1)), width - len(label))
        if all(cell == " " for cell in line[max(0, at - 1) : at + len(label)]):
            line[at : at + len(label)] = label
    return "".join(line)
