"""Rows of mixtures over rounds: each answer is a bar of its shares, one colour for each part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgefed.charts.scale import Scale, whole_ticks
from edgefed.charts.style import fill_class
from edgefed.charts.svg import clean, element, label, picture

ROW = 22
LETTER = 7.2
LEAST = 0.02
"""A smaller share is not drawn."""

Course = Sequence[tuple[int, Sequence[float]]]
"""Rounds, rising, and the shares from each of them on."""


def course_map(
    rows: Sequence[tuple[str, Course]], parts: Sequence[str], *, title: str, width: int = 720
) -> str:
    """Return a row a name as an ``svg`` element; an answer reaches to the next one.

    Args:
        rows: a name, and its mixtures.
        parts: names of the shares.
        title: what it is, for those who cannot see it.
        width: in pixels.
    """
    rounds = [number for _, course in rows for number, _ in course]
    if not rounds:
        return picture(width, 40, [label(8, 24, "nothing to show", "quiet")], title=title)
    left = min(200.0, 16 + LETTER * max(min(24, len(name)) for name, _ in rows))
    axis = Scale(min(rounds), max(rounds) + 1, left, width - 20.0)
    drawn = list(_legend(parts, left, width))
    top = 20.0 * len(_lines(parts, left, width)) + 6
    for number, (name, course) in enumerate(rows):
        y = top + number * ROW
        drawn.append(label(left - 8, y + 15, name if len(name) <= 24 else f"{name[:23]}…", "end"))
        drawn += _course(name, course, parts, axis, y)
    floor = top + len(rows) * ROW
    for tick in whole_ticks(min(rounds), max(rounds), 9):
        drawn.append(label(axis.at(tick + 0.5), floor + 16, f"{tick:.0f}", "middle quiet"))
    drawn.append(label((left + width) / 2, floor + 32, "round", "middle quiet"))
    return picture(width, round(floor) + 40, drawn, title=title)


def _course(
    name: str, course: Course, parts: Sequence[str], axis: Scale, top: float
) -> Iterator[str]:
    ends = [number for number, _ in course[1:]] + [axis.high]
    for (start, shares), end in zip(course, ends, strict=True):
        x, wide, y = axis.at(start), axis.at(end) - axis.at(start), top + 2
        for number, share in enumerate(shares):
            height = share * (ROW - 4)
            if share >= LEAST:
                told = f"{name}, round {start}, {parts[number]}: {share:.3f}"
                yield element(
                    "rect",
                    element("title", clean(told)),
                    x=x,
                    y=y,
                    width=max(0.5, wide - (1 if wide > 6 else 0)),
                    height=height,
                    class_=fill_class(number),
                )
            y += height


def _lines(parts: Sequence[str], left: float, width: int) -> list[list[tuple[int, float]]]:
    """Return where the legend names each part, in lines."""
    lines: list[list[tuple[int, float]]] = [[]]
    x = left
    for number, name in enumerate(parts):
        needed = 30 + LETTER * len(name)
        if lines[-1] and x + needed > width:
            lines.append([])
            x = left
        lines[-1].append((number, x))
        x += needed
    return lines


def _legend(parts: Sequence[str], left: float, width: int) -> Iterator[str]:
    for line, places in enumerate(_lines(parts, left, width)):
        for number, x in places:
            y = 20 * line + 2
            yield element("rect", x=x, y=y, width=12, height=12, class_=fill_class(number))
            yield label(x + 17, y + 10, parts[number])
