"""The curve of the run before below that of a run, on the axes of that run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from edgefed.tui.look.braille import cell_of, plot

Point = tuple[int, float]

EARLIER = ":"
"""Character of the curve of the run before."""

ABOVE, BELOW, AFTER = "↑↓→"
"""Marks at the edges where that curve is above, below or goes on after the axes."""


@dataclass(frozen=True)
class Frame:
    """The cells of a drawing between its axes, and the lowest and highest round and value there."""

    width: int
    height: int
    across: tuple[int, int]
    up: tuple[float, float]

    def drawn(self, points: Sequence[Point], glyph: str = "") -> list[str]:
        """Return lines with a curve through the points."""
        return plot(
            points,
            width=self.width,
            height=self.height,
            across=self.across,
            up=self.up,
            glyph=glyph,
        )

    def cell(self, point: Point) -> tuple[int, int]:
        """Return column and row of a point; of one above or below, those at the edge."""
        low, high = self.up
        inside = (point[0], max(low, min(high, point[1])))
        return cell_of(inside, width=self.width, height=self.height, across=self.across, up=self.up)

    def side(self, point: Point) -> str:
        """Return the mark of a point above or below the axis; empty inside."""
        return ABOVE if point[1] > self.up[1] else BELOW if point[1] < self.up[0] else ""


def earlier_lines(before: Sequence[Point], frame: Frame, over: Sequence[str]) -> list[str]:
    """Return the curve of the run before, with a mark wherever it leaves the axes of this run.

    Args:
        before: its points.
        frame: of this run.
        over: lines of this run, which are drawn over it; a mark is in an empty cell of them.
    """
    first, last = frame.across
    shown = [point for point in before if first <= point[0] <= last]
    after = [point for point in before if point[0] > last]
    lines = frame.drawn(shown, EARLIER)
    for mark, stretch in groupby(shown, key=frame.side):
        if mark:
            cells = [frame.cell(point) for point in stretch]
            lines = with_mark(lines, mark, _free(cells, over))
    if after:
        _, row = frame.cell([*shown[-1:], *after][0])
        rows = sorted(range(frame.height), key=lambda y: abs(y - row))
        cells = [(frame.width - 1, y) for y in rows]
        lines = with_mark(lines, AFTER, _free(cells, over))
    return lines


def _free(cells: Sequence[tuple[int, int]], over: Sequence[str]) -> tuple[int, int]:
    """Return the first cell over which nothing is drawn, or else the first one."""
    return next(((x, y) for x, y in cells if over[y][x] == " "), cells[0])


def with_mark(lines: list[str], mark: str, cell: tuple[int, int]) -> list[str]:
    """Return the lines of a curve with a mark in a cell."""
    x, y = cell
    return [*lines[:y], f"{lines[y][:x]}{mark}{lines[y][x + 1 :]}", *lines[y + 1 :]]
