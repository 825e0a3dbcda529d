"""Curves of Braille dots: each character cell has two columns and four rows of dots."""

from __future__ import annotations

import math
from collections.abc import Sequence

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""The bit of each dot of a Braille character, by column and row (Unicode block 2800)."""

_BLANK = 0x2800

_FAR = 1e9
"""Dots from the drawing at which a point may be at most; a farther one is taken to be there."""


def plot(
    points: Sequence[tuple[float, float]],
    *,
    width: int,
    height: int,
    across: tuple[float, float],
    up: tuple[float, float],
    glyph: str = "",
) -> list[str]:
    """Return ``height`` lines of ``width`` characters with a line through ``points``.

    ``points`` are (x, y) with x rising; ``across`` and ``up`` are the lowest and highest x and y of
    the drawing. Points outside are left out. ``glyph`` is drawn instead of dots in every cell that
    the line touches.
    """
    cells = [[_BLANK] * width for _ in range(height)]
    dots = [_dot(point, width * 2, height * 4, across, up) for point in points]
    for (x0, y0), (x1, y1) in zip(dots, dots[1:] or dots, strict=False):
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in _inside(y0, y1, steps, height * 4):
            x = x0 + round((x1 - x0) * step / steps)
            y = y0 + round((y1 - y0) * step / steps)
            if 0 <= x < width * 2 and 0 <= y < height * 4:
                cells[y // 4][x // 2] |= _DOTS[x % 2][y % 4]
    return ["".join(_character(cell, glyph) for cell in row) for row in cells]


def cell_of(
    point: tuple[float, float],
    *,
    width: int,
    height: int,
    across: tuple[float, float],
    up: tuple[float, float],
) -> tuple[int, int]:
    """Return column and row of the character cell of a point; see ``plot``."""
    x, y = _dot(point, width * 2, height * 4, across, up)
    return x // 2, y // 4


def _inside(start: int, end: int, steps: int, rows: int) -> range:
    """Return the steps of a line from one row to another that may be inside the drawing."""
    if start == end:
        return range(steps + 1)
    first, last = sorted((row - start) * steps / (end - start) for row in (0, rows - 1))
    return range(max(0, math.floor(first)), min(steps, math.ceil(last)) + 1)


def _character(cell: int, glyph: str) -> str:
    """Return a cell's character; an empty one is a space, which every font has."""
    return " " if cell == _BLANK else glyph or chr(cell)


def _dot(
    point: tuple[float, float],
    columns: int,
    rows: int,
    across: tuple[float, float],
    up: tuple[float, float],
) -> tuple[int, int]:
    """Return the dot of a point, counted from the upper left corner."""
    x = _share(point[0], across) * (columns - 1)
    y = (1.0 - _share(point[1], up)) * (rows - 1)
    return round(x), round(max(-_FAR, min(_FAR, y)))


def _share(value: float, between: tuple[float, float]) -> float:
    low, high = between
    return (value - low) / (high - low) if high > low else 0.5
