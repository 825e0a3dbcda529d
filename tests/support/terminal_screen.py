"""A small terminal: it draws what a full-screen program writes, and answers its questions."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

from rich.cells import cell_len

_TOKEN = re.compile(
    r"\x1b\[(?P<private>[?<>=]?)(?P<numbers>[\d;]*)(?P<between>[ -/]*)(?P<end>[@-~])"
    r"|\x1b[\]_P].*?(?:\x1b\\|\x07)"
    r"|\x1b[()].|\x1b[^\[\]_P()]"
    r"|[\x00-\x1a\x1c-\x1f]"
    r"|[^\x00-\x1f]+",
    re.DOTALL,
)

Pen = tuple[str, str, frozenset[str]]
"""Foreground, background, and attributes."""

PLAIN: Pen = ("", "", frozenset())
_BLANKS_SHOW = {"4", "7", "9", "21", "53"}


class TerminalScreen:
    """The cells of a terminal of a fixed size, without wrapping of lines.

    Args:
        columns: of the screen.
        lines: of the screen.
    """

    def __init__(self, columns: int, lines: int) -> None:
        self.cells = [[(" ", PLAIN)] * columns for _ in range(lines)]
        self._size = (columns, lines)
        self._at = (0, 0)
        self._pen = PLAIN
        self._rest = ""
        self._decoder = getincrementaldecoder("utf-8")()

    def text(self) -> str:
        """Return every character on the screen."""
        return "\n".join("".join(char for char, _ in row) for row in self.cells)

    def picture(self) -> list[list[tuple[str, object]]]:
        """Return all that a user sees: a blank has no foreground."""
        return [[(char, _seen(char, pen)) for char, pen in row] for row in self.cells]

    def take(self, output: bytes) -> bytes:
        """Draw what a program writes; return what the terminal answers."""
        text = self._rest + self._decoder.decode(output)
        answers, at = [], 0
        while (token := _TOKEN.match(text, at)) is not None:
            answers.append(self._token(token))
            at = token.end()
        self._rest = text[at:]  # the beginning of a sequence
        return "".join(answers).encode()

    def _token(self, token: re.Match[str]) -> str:
        text, end = token[0], token["end"]
        if end is not None:
            numbers = [int(part or 0) for part in token["numbers"].split(";")]
            if not token["private"] and not token["between"]:
                return self._sequence(end, numbers)
            return ""
        if text == "\n":
            self._at = (0, min(self._at[1] + 1, self._size[1] - 1))
        elif text == "\r":
            self._at = (0, self._at[1])
        elif text[0] >= " ":
            self._write(text)
        return ""

    def _sequence(self, end: str, numbers: list[int]) -> str:
        (x, y), (columns, lines) = self._at, self._size
        first = max(1, numbers[0])
        if end == "H":
            column = max(1, numbers[1]) if len(numbers) > 1 else 1
            self._at = (min(column, columns) - 1, min(first, lines) - 1)
        elif end == "G":
            self._at = (min(first, columns) - 1, y)
        elif end == "m":
            self._change_pen(numbers)
        elif end == "J" and numbers[0] == 2:
            self.cells = [[(" ", ("", self._pen[1], frozenset()))] * columns for _ in range(lines)]
        elif end == "n" and numbers[0] == 6:
            return f"\x1b[{y + 1};{min(x, columns - 1) + 1}R"
        elif end not in "tuhlcqr":
            raise AssertionError(f"unknown sequence {numbers} {end!r}")
        return ""

    def _change_pen(self, numbers: list[int]) -> None:
        front, back, attributes = self._pen
        codes = iter(numbers)
        for code in codes:
            if code == 0:
                front, back, attributes = PLAIN
            elif code in (38, 48):
                kind = next(codes)
                rest = [next(codes) for _ in range(3 if kind == 2 else 1)]
                colour = ";".join(map(str, [kind, *rest]))
                front, back = (colour, back) if code == 38 else (front, colour)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                front = str(code)
            elif 40 <= code <= 47 or 100 <= code <= 107:
                back = str(code)
            elif code == 39:
                front = ""
            elif code == 49:
                back = ""
            else:
                attributes = attributes | {str(code)}
        self._pen = (front, back, attributes)

    def _write(self, text: str) -> None:
        x, y = self._at
        columns, row = self._size[0], self.cells[y]
        for char in text:
            width = cell_len(char)
            if width == 0 and x > 0:
                at = min(x, columns) - 1
                at -= not row[at][0]
                row[at] = (row[at][0] + char, row[at][1])
                continue
            x = min(x, columns - 1)
            for column in range(x, min(x + width, columns)):
                self._break_wide(row, column)
            row[x] = (char, self._pen)
            if width == 2 and x + 1 < columns:
                row[x + 1] = ("", self._pen)
            x += width
        self._at = (x, y)

    def _break_wide(self, row: list[tuple[str, Pen]], column: int) -> None:
        """Leave a blank of a wide character of which one half is written over."""
        if not row[column][0] and column:
            row[column - 1] = (" ", row[column - 1][1])
        if column + 1 < len(row) and not row[column + 1][0]:
            row[column + 1] = (" ", row[column + 1][1])


def _seen(char: str, pen: Pen) -> object:
    _, back, attributes = pen
    shown = attributes & _BLANKS_SHOW
    return pen if char != " " or shown else (back, shown)
