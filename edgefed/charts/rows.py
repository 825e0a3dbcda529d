"""Charts with a named row for each device: bars, counts as a heat map, and shares over rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgefed.charts.axes import Scale, legend, margin, shortened, whole_ticks
from edgefed.charts.svg import box, element, fill_class, label, picture

ROW = 20
COURSE_ROW = 22
LONGEST = 30
"""Characters of a row's name that are shown."""

LEAST = 0.02
"""A smaller share is not drawn."""

Course = Sequence[tuple[int, Sequence[float]]]
"""Rounds, rising, and the shares from each of them on."""


@dataclass(frozen=True)
class Bar:
    """A row.

    Attributes:
        low, high: ends of its range, equal where there is none.
    """

    name: str
    value: float
    low: float = 0.0
    high: float = 0.0


def bar_chart(
    bars: Sequence[Bar],
    shown: Callable[[float], str],
    *,
    title: str,
    colour: int = 0,
    width: int = 720,
) -> str:
    """Return the bars as an ``svg`` element, in the order given."""
    top = max((max(bar.value, bar.high) for bar in bars), default=0.0)
    axis = Scale(0.0, top or 1.0, margin((bar.name for bar in bars), LONGEST), width - 90.0)
    parts = [part for row, bar in enumerate(bars) for part in _bar(row, bar, axis, shown, colour)]
    return picture(width, max(ROW, ROW * len(bars)), parts, title=title)


def _bar(
    row: int, bar: Bar, axis: Scale, shown: Callable[[float], str], colour: int
) -> Iterator[str]:
    y, end = row * ROW, axis.at(bar.value)
    yield label(axis.start - 8, y + 14, shortened(bar.name, LONGEST), "end")
    tooltip, wide = f"{bar.name}: {shown(bar.value)}", max(1.0, end - axis.start)
    yield box(axis.start, y + 4, wide, 12, tooltip, fill_class(colour), rx=2)
    if bar.high > bar.low:
        low, high = axis.at(bar.low), axis.at(bar.high)
        path = f"M{low:.1f} {y + 10}H{high:.1f}M{low:.1f} {y + 7}v6M{high:.1f} {y + 7}v6"
        yield element("path", d=path, class_="axis")
        end = max(end, high)
    yield label(end + 6, y + 14, shown(bar.value), "quiet")


def heat_map(
    rows: Sequence[tuple[str, Sequence[int]]], *, title: str, axis: str, width: int = 720
) -> str:
    """Return an ``svg`` element with a column for each count; larger ones have a stronger colour.

    Args:
        rows: a name, and its count for each column.
        title: description for readers that cannot see it.
        axis: name of the columns.
        width: in pixels.
    """
    columns = max((len(counts) for _, counts in rows), default=0)
    most = max((count for _, counts in rows for count in counts), default=0)
    left = margin((name for name, _ in rows), LONGEST)
    cell = min(56.0, (width - left) / max(1, columns))
    parts = [
        label(left + columns * cell / 2, 14, axis, "middle quiet"),
        *(
            label(left + (column + 0.5) * cell, ROW + 14, column, "middle quiet")
            for column in range(0, columns, max(1, math.ceil(26 / cell)))
        ),
    ]
    for row, (name, counts) in enumerate(rows):
        y = (row + 2) * ROW
        parts.append(label(left - 8, y + 14, shortened(name, LONGEST), "end"))
        for column, count in enumerate(counts):
            if count > 0:
                x, tooltip = left + column * cell, f"{name}, {axis} {column}: {count}"
                wide, shade = max(0.5, cell - 2), 0.1 + 0.45 * math.sqrt(count / most)
                parts.append(box(x + 1, y + 1, wide, ROW - 2, tooltip, "f0", opacity=shade, rx=2))
                if cell >= 9 * len(str(count)):
                    parts.append(label(x + cell / 2, y + 14, count, "middle"))
    return picture(width, (len(rows) + 2) * ROW + 4, parts, title=title)


def course_map(
    rows: Sequence[tuple[str, Course]], parts: Sequence[str], *, title: str, width: int = 720
) -> str:
    """Return an ``svg`` element with a bar of shares for each answer, which reaches to the next.

    Args:
        rows: a name, and its mixtures.
        parts: names of the shares.
        title: description for readers that cannot see it.
        width: in pixels.
    """
    rounds = [number for _, course in rows for number, _ in course]
    if not rounds:
        return picture(width, 40, [label(8, 24, "nothing to show", "quiet")], title=title)
    left = margin((name for name, _ in rows), LONGEST)
    axis = Scale(min(rounds), max(rounds) + 1, left, width - 20.0)
    height, drawn = legend(parts, (left, width), 0, _part_mark, 17)
    top = height + 6
    for number, (name, course) in enumerate(rows):
        y = top + number * COURSE_ROW
        drawn.append(label(left - 8, y + 15, shortened(name, LONGEST), "end"))
        drawn += _course(name, course, parts, axis, y)
    floor = top + len(rows) * COURSE_ROW
    for tick in whole_ticks(min(rounds), max(rounds), 9):
        drawn.append(label(axis.at(tick + 0.5), floor + 16, f"{tick:.0f}", "middle quiet"))
    drawn.append(label((left + width) / 2, floor + 32, "round", "middle quiet"))
    return picture(width, floor + 40, drawn, title=title)


def _course(
    name: str, course: Course, parts: Sequence[str], axis: Scale, top: float
) -> Iterator[str]:
    ends = [number for number, _ in course[1:]] + [axis.high]
    for (start, shares), end in zip(course, ends, strict=True):
        x, y = axis.at(start), top + 2
        wide = axis.at(end) - x
        for number, share in enumerate(shares):
            height = share * (COURSE_ROW - 4)
            if share >= LEAST:
                tooltip = f"{name}, round {start}, {parts[number]}: {share:.3f}"
                seen = max(0.5, wide - (1 if wide > 6 else 0))
                yield box(x, y, seen, height, tooltip, fill_class(number))
            y += height


def _part_mark(number: int, x: float, y: float) -> str:
    return element("rect", x=x, y=y - 6, width=12, height=12, class_=fill_class(number))
