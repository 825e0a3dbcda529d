"""A grid of shares as text: a row a name, a column an expert, larger shares shaded darker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from edgefed.tui.text_format import clean, cut, sparks
from edgefed.tui.theme import MUTED, SKY

_SHADES = ((0.75, "███"), (0.5, "▓▓▓"), (0.25, "▒▒▒"), (0.1, "░░░"))
_SHADED, _PLAIN = 9, 6
"""Cells of a share with a shade, and of a number alone."""
_NAMES = (6, 16)
"""Least and largest width of a name."""

Row = tuple[str, Sequence[float]]
"""A name and its shares."""


@dataclass(frozen=True)
class ShareGrid:
    """The widths of the columns.

    Attributes:
        experts: number of columns.
        names: cells of a name.
        cell: cells of a share; 0 where columns of numbers do not fit, so that a row has one block
            character for each share.
    """

    experts: int
    names: int
    cell: int

    @classmethod
    def fitting(cls, names: Iterable[str], experts: int, width: int) -> ShareGrid:
        """Return the grid of ``width`` cells for rows of these names, the heading's among them."""
        low, high = _NAMES
        wide = min(high, max(low, *map(len, names)))
        cells = (each for each in (_SHADED, _PLAIN) if wide + experts * each <= width)
        return cls(experts, wide, next(cells, 0))

    @property
    def width(self) -> int:
        """Cells of a row."""
        blocks = max(2 + self.experts, len(self._numbers))
        return self.names + (self.experts * self.cell if self.cell else blocks)

    @property
    def _numbers(self) -> str:
        """The heading over block characters."""
        return f"  e0 to e{self.experts - 1}"

    def head(self, name: str) -> Text:
        """Return the heading."""
        line = Text(f"{cut(name, self.names):<{self.names}}", MUTED)
        if not self.cell:
            return line.append(self._numbers)
        titles = (f"e{expert}" for expert in range(self.experts))
        return line.append("".join(f"{title:>{self.cell}}" for title in titles))

    def row(self, name: str, shares: Sequence[float]) -> Text:
        """Return the line of a name."""
        line = Text(f"{cut(clean(name), self.names):<{self.names}}")
        if not self.cell:
            return line.append("  ").append(sparks(shares), SKY)
        for share in shares:
            if self.cell == _SHADED:
                line.append(f" {_shade(share):>3} ", SKY)
            wide = 4 if self.cell == _SHADED else self.cell
            line.append(f"{f'{share:.2f}':>{wide}}", "" if share >= 0.1 else MUTED)
        return line


def _shade(share: float) -> str:
    return next((shade for least, shade in _SHADES if share >= least), "")
