"""Heat maps: counts in a grid; larger counts have a stronger colour."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from edgefed.charts.svg import clean, element, label, picture

ROW = 20
LETTER = 7.2


def heat_map(
    rows: Sequence[tuple[str, Sequence[int]]], *, title: str, axis: str, width: int = 720
) -> str:
    """Return an ``svg`` element with a row a name and a column a position of its counts.

    Args:
        rows: a name, and its count for each column.
        title: what it is, for those who cannot see it.
        axis: what a column is.
        width: in pixels.
    """
    columns = max((len(counts) for _, counts in rows), default=0)
    most = max((count for _, counts in rows for count in counts), default=0)
    left = min(240.0, 16 + LETTER * max((len(name) for name, _ in rows), default=0))
    cell = min(56.0, (width - left) / max(1, columns))
    parts = [*_head(columns, left, cell, axis)]
    for row, (name, counts) in enumerate(rows):
        y = (row + 2) * ROW
        parts.append(label(left - 8, y + 14, name if len(name) <= 30 else f"{name[:29]}…", "end"))
        parts += _cells(counts, (left, y), cell, most, f"{name}, {axis}")
    return picture(width, (len(rows) + 2) * ROW + 4, parts, title=title)


def _head(columns: int, left: float, cell: float, axis: str) -> Iterator[str]:
    yield label(left + columns * cell / 2, 14, axis, "middle quiet")
    every = max(1, math.ceil(26 / cell))
    for column in range(0, columns, every):
        yield label(left + (column + 0.5) * cell, ROW + 14, column, "middle quiet")


def _cells(
    counts: Sequence[int], at: tuple[float, float], cell: float, most: int, what: str
) -> Iterator[str]:
    for column, count in enumerate(counts):
        if count <= 0:
            continue
        x = at[0] + column * cell
        strength = 0.1 + 0.45 * math.sqrt(count / most)
        yield element(
            "rect",
            element("title", clean(f"{what} {column}: {count}")),
            x=x + 1,
            y=at[1] + 1,
            width=max(0.5, cell - 2),
            height=ROW - 2,
            rx=2,
            class_="f0",
            fill_opacity=f"{strength:.2f}",
        )
        if cell >= 9 * len(str(count)):
            yield label(x + cell / 2, at[1] + 14, count, "middle")
