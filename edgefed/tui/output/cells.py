"""The cells of a terminal, as they were written and as they should be; only changed ones are sent.

A widget of Textual that repaints writes all of its cells, equal ones too. Over a slow link these
are most of the bytes of a dashboard (docs/performance.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from rich.style import Style

Pen = tuple[str | None, str, str]
"""Codes of the foreground (None where any will do), of the background, and of attributes."""

Cell = tuple[str, Pen]
"""Text and pen. The cells that a wide character covers after its first one have no text."""

_PLAIN: Pen = ("", "", "")
_EMPTY: Cell = (" ", (None, "", ""))
_UNKNOWN: Cell = ("\0", _PLAIN)
"""Equal to no cell, so that whatever the terminal shows there is written anew."""

_ATTRIBUTES = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "underline": "4",
    "blink": "5",
    "blink2": "6",
    "reverse": "7",
    "conceal": "8",
    "strike": "9",
    "underline2": "21",
    "overline": "53",
}
_ON_BLANKS = {"4", "7", "9", "21", "53"}
"""Attributes that are visible where there is no text."""

_MOST_WRITTEN_THROUGH = 3
"""Unchanged cells between changed ones that are written, as moving the cursor takes more bytes."""

RESET = "\x1b[m"


def cells_of(segments: Iterable[Segment], system: ColorSystem) -> list[Cell]:
    """Return the cells of a line's segments, in the colours of the terminal."""
    cells: list[Cell] = []
    for text, style, control in segments:
        if not control:
            cells.extend(_cells(text, style, system))
    return cells


@lru_cache(8192)
def _cells(text: str, style: Style | None, system: ColorSystem) -> tuple[Cell, ...]:
    pen, blank = _pens(style or Style.null(), system)
    if text.isascii():
        return tuple([(char, blank if char == " " else pen) for char in text])
    cells: list[Cell] = []
    for part, width in _parts(text):
        cells.append((part, blank if part == " " else pen))
        cells.extend([("", pen)] * (width - 1))
    return tuple(cells)


def _parts(text: str) -> list[tuple[str, int]]:
    """Return the characters with their widths, with those that change the one before them."""
    parts: list[tuple[str, int]] = []
    for char in text:
        width = cell_len(char)
        if width:
            parts.append((char, width))
        elif parts:
            parts[-1] = (parts[-1][0] + char, parts[-1][1])
    width = cell_len(text)
    if sum(cells for _, cells in parts) != width:  # several characters that are drawn as one
        return [(text, width)] if width else []
    return parts


@lru_cache(4096)
def _pens(style: Style, system: ColorSystem) -> tuple[Pen, Pen]:
    """Return the pens of a style for a text and for a blank."""
    front, back = (
        "" if colour is None else ";".join(colour.downgrade(system).get_ansi_codes(foreground))
        for colour, foreground in ((style.color, True), (style.bgcolor, False))
    )
    codes = [code for name, code in _ATTRIBUTES.items() if getattr(style, name)]
    pen = (front, back, ";".join(codes))
    return pen, pen if _ON_BLANKS.intersection(codes) else (None, back, "")


class Cells:
    """The cells of a terminal.

    ``put`` changes how they should be; ``changes`` returns the bytes that make the terminal show
    this, and takes them as written.
    """

    def __init__(self) -> None:
        self._size = (0, 0)
        self._newest: list[list[Cell]] = []
        self._written: list[list[Cell]] = []
        self._touched: set[int] = set()

    @property
    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return self._size

    @property
    def changed(self) -> bool:
        """Whether any cell differs from the written one."""
        return any(self._newest[y] != self._written[y] for y in self._touched)

    def resize(self, columns: int, lines: int) -> None:
        """Take another size, after which the terminal may show anything."""
        kept = [row[:columns] for row in self._newest[:lines]]
        kept += [[] for _ in range(lines - len(kept))]
        self._newest = [row + [_EMPTY] * (columns - len(row)) for row in kept]
        self._size = (columns, lines)
        self.forget()

    def forget(self) -> None:
        """Write every cell with the next changes: the terminal may show anything."""
        columns, lines = self._size
        self._written = [[_UNKNOWN] * columns for _ in range(lines)]
        self._touched = set(range(lines))

    def put(self, x: int, y: int, cells: Sequence[Cell]) -> None:
        """Change the cells from a place on; the rest that does not fit is left out."""
        columns, lines = self._size
        if 0 <= y < lines and 0 <= x < columns:
            part = cells[: columns - x]
            self._newest[y][x : x + len(part)] = part
            self._touched.add(y)

    def changes(self) -> str:
        """Return the bytes for the newest cells; empty where the terminal shows them already."""
        writing = _Writing()
        for y in sorted(self._touched):
            newest, written = self._newest[y], self._written[y]
            if newest != written:
                writing.row(y, newest, written)
                self._written[y] = newest.copy()
        self._touched.clear()
        return writing.text()


class _Writing:
    """A sequence for a terminal whose pen is its own, which moves, changes the pen and writes."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._pen = _PLAIN

    def text(self) -> str:
        """Return the sequence, after which the pen is the terminal's own; empty for none."""
        return "".join([*self._parts, RESET]) if self._parts else ""

    def row(self, y: int, newest: list[Cell], written: list[Cell]) -> None:
        """Write the cells of a row that differ."""
        at = -1  # the cursor's column, once it is in this row
        for x, (cell, before) in enumerate(zip(newest, written, strict=True)):
            if x < at or cell == before:
                continue
            self._go(x, y, at, newest)
            at = x + self._write(x, newest)

    def _go(self, x: int, y: int, at: int, newest: list[Cell]) -> None:
        """Move the cursor in its row, or to another row."""
        if at < 0:
            self._parts.append(f"\x1b[{y + 1};{x + 1}H" if x else f"\x1b[{y + 1}H")
            return
        between = newest[at:x]
        if len(between) <= _MOST_WRITTEN_THROUGH and all(
            text and not self._codes(pen)[1] for text, pen in between
        ):
            self._parts.extend(text for text, _ in between)
        else:
            self._parts.append(f"\x1b[{x + 1}G")

    def _write(self, x: int, newest: list[Cell]) -> int:
        """Write a cell with those that its character covers; return how many they are."""
        text, pen = newest[x]
        self._pen, codes = self._codes(pen)
        self._parts.append(f"\x1b[{';'.join(codes)}m{text}" if codes else text)
        width = 1
        while x + width < len(newest) and not newest[x + width][0]:
            width += 1
        return width

    def _codes(self, pen: Pen) -> tuple[Pen, list[str]]:
        """Return the pen for a cell, and the fewest codes that change the present one to it."""
        front, back, attributes = pen
        now_front, now_back, now_attributes = self._pen
        if front is None:  # a blank: what only a text shows may stay as it is
            visible = _ON_BLANKS.intersection(now_attributes.split(";"))
            front, attributes = ("", "") if visible else (now_front, now_attributes)
        codes: list[str] = []
        if attributes != now_attributes:
            if now_attributes:
                codes.append("0")
                now_front, now_back = "", ""
            if attributes:
                codes.append(attributes)
        if front != now_front:
            codes.append(front or "39")
        if back != now_back:
            codes.append(back or "49")
        return (front, back, attributes), codes
