"""Shares in grids, one grid beside the other: the larger a share, the darker its cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgefed.charts.svg import clean, element, label, picture

LETTER = 7.2
HEAD = 40
STRONGEST = 0.75
"""Opacity of a share of 1, on which its number can be read."""
_CELLS = (7.0, 34.0)
"""Least and largest width of a cell."""
_ROWS = (5, 20)
"""Height of a row, where there are too many to name each and where not."""
_NAMED = 64
"""Rows that are all named."""
_GAP = 22


@dataclass(frozen=True)
class Panel:
    """A grid.

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
        title: what it is, for those who cannot see it.
        width: in pixels.
    """
    left = min(200.0, 16 + LETTER * max((len(_short(name)) for name in names), default=0))
    if not panels or not columns or not names:
        return picture(width, 40, [label(8, 24, "nothing to show", "quiet")], title=title)
    room = (width - left) / len(panels) - _GAP
    cell = min(_CELLS[1], max(_CELLS[0], room / len(columns)))
    row = _ROWS[1] if len(names) <= _NAMED else _ROWS[0]
    panel_width = max(cell * len(columns), LETTER * max(len(panel.title) for panel in panels))
    each_line = max(1, int((width - left + _GAP) // (panel_width + _GAP)))
    head = HEAD if any(panel.title for panel in panels) else HEAD - 18
    line_height = head + row * len(names) + _GAP
    parts = list[str]()
    for number, panel in enumerate(panels):
        line, place = divmod(number, each_line)
        top, x = line * line_height, left + place * (panel_width + _GAP)
        if place == 0:
            parts += _names(names, left, top + head, row)
        parts += _panel(panel, names, columns, (x, float(top + head)), (cell, row))
    lines = -(-len(panels) // each_line)
    drawn = left + min(each_line, len(panels)) * (panel_width + _GAP)
    return picture(max(width, round(drawn)), lines * line_height, parts, title=title)


def _names(names: Sequence[str], left: float, top: float, row: int) -> Iterator[str]:
    every = 1 if len(names) <= _NAMED else -(-14 // row)
    for number in range(0, len(names), every):
        y = top + row * number + min(row, 14)
        yield label(left - 8, y, _short(names[number]), "end")


def _panel(
    panel: Panel,
    names: Sequence[str],
    columns: Sequence[str],
    at: tuple[float, float],
    size: tuple[float, int],
) -> Iterator[str]:
    (x, y), (cell, row) = at, size
    wide = cell * len(columns)
    if panel.title:
        yield label(x + wide / 2, y - HEAD + 14, panel.title, "middle")
    every = -(-max(LETTER * (len(name) + 1) for name in columns) // cell)
    for number in range(0, len(columns), int(every)):
        yield label(x + (number + 0.5) * cell, y - 6, columns[number], "middle quiet")
    yield element(
        "rect", x=x, y=y, width=wide, height=row * len(names), class_="grid",
        fill="none",
    )  # fmt: skip
    for line, shares in enumerate(panel.rows):
        for column, share in enumerate(shares):
            if share >= 0.005:
                told = f"{names[line]}, {columns[column]}: {share:.3f}"
                place = (x + column * cell, y + line * row)
                yield from _cell(share, told, place, size)


def _cell(
    share: float, told: str, at: tuple[float, float], size: tuple[float, int]
) -> Iterator[str]:
    (x, y), (cell, row) = at, size
    yield element(
        "rect",
        element("title", clean(told)),
        x=x + 0.5,
        y=y + 0.5,
        width=cell - 1,
        height=row - 1,
        class_="f0",
        fill_opacity=f"{STRONGEST * min(1.0, share):.2f}",
    )
    if cell >= 28 and row >= 16:
        yield label(x + cell / 2, y + 14, f"{share:.2f}".lstrip("0"), "middle")


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:23]}…"
