"""Confusion matrices: a row for each true label, a column for each predicted one.

A cell is coloured by its share of its row: right answers, on the diagonal, in one colour, and wrong
ones in another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from edgefed.charts.svg import clean, element, label, picture

LETTER = 7.2
LARGEST_CELL, SMALLEST_CELL = 56.0, 14.0
TINY_CELL = 6.0
"""Cells of more than ``MANY`` classes, of which not every one has its name."""

MANY = 100
FEW = 30
"""Up to this many classes there is a line between them."""

LEAST_SHARE = 0.005
"""Of more than ``MANY`` classes, smaller shares of a row are not drawn."""

MAX_NAME = 18
"""Characters of a class that are shown."""


def matrix_chart(
    counts: Sequence[Sequence[int]], names: Sequence[str], *, title: str, width: int = 720
) -> str:
    """Return an ``svg`` element; it is wider than ``width`` where the classes need it.

    Args:
        counts: samples by true label and predicted label.
        names: what each label is called.
        title: what it is, for those who cannot see it.
        width: in pixels.
    """
    classes = len(counts)
    shown = [name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…" for name in names]
    margin = 16 + LETTER * max(map(len, shown), default=0)
    left, top = margin + 20, margin + 20
    least = SMALLEST_CELL if classes <= MANY else TINY_CELL
    cell = max(least, min(LARGEST_CELL, (width - left - 8) / max(1, classes)))
    side = cell * classes
    parts = [
        *_names(shown, (left, top), cell),
        *_grid(classes, (left, top), cell),
        *(
            part
            for row in range(classes)
            for part in _row(counts[row], row, names, (left, top), cell)
        ),
    ]
    return picture(max(width, left + side + 8), top + side + 8, parts, title=title)


def _names(names: Sequence[str], at: tuple[float, float], cell: float) -> Iterator[str]:
    """Yield the axes: names from left to right upright, and from top to bottom."""
    left, top = at
    middle = cell * len(names) / 2
    yield label(left + middle, 14, "predicted label", "middle quiet")
    yield _upright(14, top + middle, "true label", "middle quiet")
    every = max(1, math.ceil(13 / cell))
    for number in range(0, len(names), every):
        centre = (number + 0.5) * cell + 4
        yield label(left - 6, top + centre, names[number], "end")
        yield _upright(left + centre, top - 6, names[number])


def _upright(x: float, y: float, text: str, class_: str = "") -> str:
    """Return a line of text that is read from bottom to top."""
    turn = f"rotate(-90 {x:.1f} {y:.1f})"
    return element("text", clean(text), x=x, y=y, class_=class_, transform=turn)


def _grid(classes: int, at: tuple[float, float], cell: float) -> Iterator[str]:
    left, top = at
    side = cell * classes
    yield element("rect", x=left, y=top, width=side, height=side, class_="axis")
    for number in range(1, classes if classes <= FEW else 1):
        x, y = left + number * cell, top + number * cell
        yield element("line", x1=x, y1=top, x2=x, y2=top + side, class_="grid")
        yield element("line", x1=left, y1=y, x2=left + side, y2=y, class_="grid")


def _row(
    counts: Sequence[int], row: int, names: Sequence[str], at: tuple[float, float], cell: float
) -> Iterator[str]:
    total = sum(counts)
    for column, count in enumerate(counts):
        if count <= 0 or (len(counts) > MANY and count < LEAST_SHARE * total):
            continue
        x, y = at[0] + column * cell, at[1] + row * cell
        share = count / total
        told = f"{names[row]} predicted as {names[column]}: {count} of {total}, {share:.1%}"
        yield element(
            "rect",
            element("title", clean(told)),
            x=x + 0.5,
            y=y + 0.5,
            width=cell - 1,
            height=cell - 1,
            class_="f0" if row == column else "f1",
            fill_opacity=f"{0.12 + 0.5 * math.sqrt(share):.2f}",
        )
        if cell >= max(18, 8 * len(str(count)) + 4):
            yield label(x + cell / 2, y + cell / 2 + 4, count, "middle")
