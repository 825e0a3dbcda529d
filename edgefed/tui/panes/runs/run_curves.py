"""Accuracy or loss of some runs on one axis, each curve with a letter at its end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from edgefed.events.base.best_rounds import Measure
from edgefed.events.history.known_runs import RunDetails
from edgefed.events.history.run_comparison import Comparison
from edgefed.tui.look.braille import cell_of, plot
from edgefed.tui.look.symbols import Glyphs
from edgefed.tui.look.text_format import cut_middle
from edgefed.tui.look.theme import MUTED
from edgefed.tui.panes.base.compared_runs import COLOURS, CURVES, LETTERS, ComparedRunsPane, named
from edgefed.tui.panes.base.curve import SAMPLE, labels, rounds_below, value_range
from edgefed.tui.state.display_state import Shown
from edgefed.tui.state.key_orders import ENDED

Point = tuple[int, float]

_AXIS_BELOW = 2
"""Lines below the curves: the axis and the numbers of rounds."""

_LEAST = (8, 5)
"""Cells and lines from which there is something to see."""


@dataclass(frozen=True)
class Curve:
    """A run's finished rounds that have a measure."""

    letter: str
    colour: str
    glyph: str
    points: Sequence[Point]


class RunCurvesPane(ComparedRunsPane):
    """The curves of one measure, with a legend above them."""

    def __init__(self, glyphs: Glyphs, measure: Measure, *, id: str) -> None:  # noqa: A002
        super().__init__(glyphs, id=id)
        self._measure = measure

    def heading(self, shown: Shown) -> str:
        """Return the measure."""
        return self._measure.capitalize()

    def footing(self, shown: Shown) -> str:
        """Return how to see the other curve where only one fits."""
        if super().footing(shown) or not self.screen.has_class("-narrow"):
            return super().footing(shown)
        key = shown.keys.label("comparison.curve")
        return f"{key} {'Loss' if self._measure == 'accuracy' else 'Accuracy'}"

    def body(self, shown: Shown, width: int, height: int) -> Text:
        """Return legend, curves and axes."""
        if self.comparison is None:
            return Text()
        curves = curves_of(self.comparison.runs, self._measure)
        if not any(curve.points for curve in curves):
            return Text(self._nothing_drawn(self.comparison.runs), MUTED)
        if width < _LEAST[0] or height < _LEAST[1]:
            return Text()
        lines = [legend(self.comparison, width), *drawing(curves, self._measure, width, height - 1)]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(lines)

    def _nothing_drawn(self, runs: Sequence[RunDetails]) -> str:
        """Return why there is no curve, and whether there will be one."""
        if all(run.status in ENDED for run in runs):
            return f"No round of these runs measured the {self._measure}."
        return f"Drawn from the first round that measures {self._measure}."


def curves_of(runs: Sequence[RunDetails], measure: Measure) -> list[Curve]:
    """Return the curve of each run; without points where no round has the measure."""
    return [
        Curve(letter, colour, glyph, _points(run, measure))
        for letter, colour, glyph, run in zip(LETTERS, COLOURS, CURVES, runs, strict=False)
    ]


def legend(comparison: Comparison, width: int) -> Text:
    """Return letter, colour and curve of each run; ids are cut to fit the width."""
    runs = named(comparison)
    room = max(3, width // max(1, len(runs)) - 6)
    line = Text()
    for (letter, colour, run), glyph in zip(runs, CURVES, strict=False):
        line.append(f"{letter} {glyph or SAMPLE} {cut_middle(run, room)}  ", f"bold {colour}")
    return line


def drawing(curves: Sequence[Curve], measure: Measure, width: int, height: int) -> list[Text]:
    """Return the curves between their axes; of two in one cell the first is shown."""
    every = [point for curve in curves for point in curve.points]
    across = (min(at for at, _ in every), max(at for at, _ in every))
    up, rows = value_range(every, measure), height - _AXIS_BELOW
    left = labels(up, rows)
    size = (width - len(left[0]), rows)
    cells = _cells(curves, size, across, up)
    lines = [
        Text(label, MUTED).append_text(Text.assemble(*cells[y])) for y, label in enumerate(left)
    ]
    indent = " " * (len(left[0]) - 1)
    lines.append(Text(f"{indent}└{'─' * size[0]}", MUTED))
    lines.append(Text(f"{indent} {rounds_below(across, size[0])}", MUTED))
    return lines


def _points(run: RunDetails, measure: Measure) -> list[Point]:
    pairs = ((row.round, getattr(row, measure)) for row in run.history)
    return [(at, value) for at, value in pairs if value is not None and math.isfinite(value)]


def _cells(
    curves: Sequence[Curve], size: tuple[int, int], across: tuple[int, int], up: tuple[float, float]
) -> list[list[tuple[str, str]]]:
    """Return character and colour of each cell: the curves, and over them their letters."""
    width, height = size
    cells = [[(" ", "")] * width for _ in range(height)]

    def drawn(points: Sequence[Point], glyph: str) -> list[tuple[int, int, str]]:
        if not points:
            return []
        lines = plot(points, width=width, height=height, across=across, up=up, glyph=glyph)
        return [(x, y, c) for y, line in enumerate(lines) for x, c in enumerate(line) if c != " "]

    for curve in reversed(curves):
        for x, y, char in drawn(curve.points, curve.glyph):
            cells[y][x] = (char, curve.colour)
    lettered: set[tuple[int, int]] = set()
    for curve in curves:
        for point in curve.points[-1:]:
            end, y = cell_of(point, width=width, height=height, across=across, up=up)
            x = next((x for x in range(end, 0, -1) if (x, y) not in lettered), end)
            lettered.add((x, y))
            cells[y][x] = (curve.letter, f"bold {curve.colour}")
    return cells
