"""Charts with rows and columns: confusion matrices, and shares in grids beside each other.

In a matrix, the row is a true label and the column a predicted one. A cell is coloured by its share
of its row: right answers, on the diagonal, in one colour, and wrong ones in another. Of shares, the
larger is the darker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgefed.charts.axes import LETTER, margin, shortened
from edgefed.charts.svg import box, clean, element, label, picture

LARGEST_CELL, SMALLEST_CELL = 56.0, 14.0
TINY_CELL = 6.0
"""Cells of more than ``MANY`` classes, of which not every one has its name."""

MANY = 100
FEW = 30
"""Up to this many classes there is a line between them."""

LEAST_SHARE = 0.005
"""Smaller shares are not drawn; in a matrix, of more than ``MANY`` classes only."""

MAX_NAME = 18
"""Characters of a class that a matrix shows."""

MAX_ROW_NAME = 24
"""Characters of a row's name beside shares."""

STRONGEST = 0.75
"""Opacity of a share of 1, on which its number can be read."""

_HEAD, _GAP = 40, 22
_CELLS = (7.0, 34.0)
"""Least and largest width of a share's cell."""
_ROWS = (5, 20)
"""Height of a row of shares, where there are too many to name each and where not."""
_NAMED = 64
"""Rows of shares that are all named."""


@dataclass(frozen=True)
class _Grid:
    """Where cells are, in pixels: the upper left corner, the width and the height of a cell."""

    left: float
    top: float
    wide: float
    high: float

    def cell(
        self, row: int, column: int, tooltip: str, class_: str, opacity: float, number: str
    ) -> Iterator[str]:
        """Yield a coloured cell, and its number where there is one."""
        x, y = self.left + column * self.wide, self.top + row * self.high
        yield box(x + 0.5, y + 0.5, self.wide - 1, self.high - 1, tooltip, class_, opacity=opacity)
        if number:
            yield label(x + self.wide / 2, y + self.high / 2 + 4, number, "middle")


def matrix_chart(
    counts: Sequence[Sequence[int]], names: Sequence[str], *, title: str, width: int = 720
) -> str:
    """Return an ``svg`` element; it is wider than ``width`` where the classes need it.

    Args:
        counts: samples by true label and predicted label.
        names: of the labels.
        title: description for readers that cannot see it.
        width: in pixels.
    """
    classes = len(counts)
    start = margin(names, MAX_NAME) + 20
    least = SMALLEST_CELL if classes <= MANY else TINY_CELL
    cell = max(least, min(LARGEST_CELL, (width - start - 8) / max(1, classes)))
    grid, side = _Grid(start, start, cell, cell), cell * classes
    parts = [*_class_names([shortened(name, MAX_NAME) for name in names], grid)]
    parts.append(element("rect", x=start, y=start, width=side, height=side, class_="axis"))
    for number in range(1, classes if classes <= FEW else 1):
        at, end = start + number * cell, start + side
        parts.append(element("line", x1=at, y1=start, x2=at, y2=end, class_="grid"))
        parts.append(element("line", x1=start, y1=at, x2=end, y2=at, class_="grid"))
    for row in range(classes):
        parts += _matrix_row(counts[row], row, names, grid)
    return picture(max(width, start + side + 8), start + side + 8, parts, title=title)


def _class_names(names: Sequence[str], grid: _Grid) -> Iterator[str]:
    """Yield the axes: names from left to right upright, and from top to bottom."""
    middle = grid.wide * len(names) / 2
    yield label(grid.left + middle, 14, "predicted label", "middle quiet")
    yield _upright(14, grid.top + middle, "true label", "middle quiet")
    every = max(1, math.ceil(13 / grid.wide))
    for number in range(0, len(names), every):
        centre = (number + 0.5) * grid.wide + 4
        yield label(grid.left - 6, grid.top + centre, names[number], "end")
        yield _upright(grid.left + centre, grid.top - 6, names[number])


def _upright(x: float, y: float, text: str, class_: str = "") -> str:
    """Return a line of text that is read from bottom to top."""
    turn = f"rotate(-90 {x:.1f} {y:.1f})"
    return element("text", clean(text), x=x, y=y, class_=class_, transform=turn)


def _matrix_row(
    counts: Sequence[int], row: int, names: Sequence[str], grid: _Grid
) -> Iterator[str]:
    total = sum(counts)
    for column, count in enumerate(counts):
        if count <= 0 or (len(counts) > MANY and count < LEAST_SHARE * total):
            continue
        share = count / total
        tooltip = f"{names[row]} predicted as {names[column]}: {count} of {total}, {share:.1%}"
        number = str(count) if grid.wide >= max(18, 8 * len(str(count)) + 4) else ""
        class_, opacity = "f0" if row == column else "f1", 0.12 + 0.5 * math.sqrt(share)
        yield from grid.cell(row, column, tooltip, class_, opacity, number)


@dataclass(frozen=True)
class Panel:
    """A grid of shares.

    Attributes:
        title: shown above it.
        rows: for each row its shares, from 0 to 1, one for each column.
    """

    title: str
    rows: Sequence[Sequence[float]]


def share_maps(
    panels: Sequence[Panel],
    names: Sequence[str],
    columns: Sequence[str],
    *,
    title: str,
    width: int = 720,
) -> str:
    """Return the panels as an ``svg`` element, in lines as wide as ``width``.

    Args:
        panels: with the same number of columns.
        names: of the rows, which all panels have in common.
        columns: names of the columns.
        title: description for readers that cannot see it.
        width: in pixels.
    """
    if not panels or not columns or not names:
        return picture(width, 40, [label(8, 24, "nothing to show", "quiet")], title=title)
    left = margin(names, MAX_ROW_NAME)
    room = (width - left) / len(panels) - _GAP
    cell = min(_CELLS[1], max(_CELLS[0], room / len(columns)))
    row = _ROWS[1] if len(names) <= _NAMED else _ROWS[0]
    panel_width = max(cell * len(columns), LETTER * max(len(panel.title) for panel in panels))
    each_line = max(1, int((width - left + _GAP) // (panel_width + _GAP)))
    head = _HEAD if any(panel.title for panel in panels) else _HEAD - 18
    line_height = head + row * len(names) + _GAP
    parts = list[str]()
    for number, panel in enumerate(panels):
        line, place = divmod(number, each_line)
        top = line * line_height + head
        if place == 0:
            every = 1 if row == _ROWS[1] else -(-14 // row)
            for start in range(0, len(names), every):
                y, name = top + row * start + min(row, 14), shortened(names[start], MAX_ROW_NAME)
                parts.append(label(left - 8, y, name, "end"))
        grid = _Grid(left + place * (panel_width + _GAP), float(top), cell, row)
        parts += _panel(panel, names, columns, grid)
    lines = -(-len(panels) // each_line)
    drawn = left + min(each_line, len(panels)) * (panel_width + _GAP)
    return picture(max(width, round(drawn)), lines * line_height, parts, title=title)


def _panel(
    panel: Panel, names: Sequence[str], columns: Sequence[str], grid: _Grid
) -> Iterator[str]:
    x, y, wide, high = grid.left, grid.top, grid.wide * len(columns), grid.high * len(names)
    if panel.title:
        yield label(x + wide / 2, y - _HEAD + 14, panel.title, "middle")
    every = -(-max(LETTER * (len(name) + 1) for name in columns) // grid.wide)
    for number in range(0, len(columns), int(every)):
        yield label(x + (number + 0.5) * grid.wide, y - 6, columns[number], "middle quiet")
    yield element("rect", x=x, y=y, width=wide, height=high, class_="grid", fill="none")
    roomy = grid.wide >= 28 and grid.high >= 16
    for line, shares in enumerate(panel.rows):
        for column, share in enumerate(shares):
            if share >= LEAST_SHARE:
                tooltip = f"{names[line]}, {columns[column]}: {share:.3f}"
                written = f"{share:.2f}".lstrip("0") if roomy else ""
                opacity = STRONGEST * min(1.0, share)
                yield from grid.cell(line, column, tooltip, "f0", opacity, written)
