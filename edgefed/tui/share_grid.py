"""A grid of shares as text: a row a name, a column an expert, larger shares shaded darker."""

from __future__ import annotations

from collections.abc import Sequence

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


def share_grid(head: str, rows: Sequence[Row], experts: int, width: int) -> list[Text]:
    """Return a heading and a line for each row, at most ``width`` cells wide.

    Where columns of numbers do not fit, a row has one block character for each share.
    """
    low, high = _NAMES
    longest = max([len(head), *(len(name) for name, _ in rows)])
    names = min(high, max(low, longest))
    cell = next((each for each in (_SHADED, _PLAIN) if names + experts * each <= width), 0)
    titles = [f"e{expert}" for expert in range(experts)]
    line = Text(f"{cut(head, names):<{names}}", MUTED, no_wrap=True, overflow="ellipsis")
    if cell:
        line.append("".join(f"{title:>{cell}}" for title in titles))
    else:
        line.append(f"  e0 to e{experts - 1}")
    return [line, *(_row(name, shares, names, cell) for name, shares in rows)]


def _row(name: str, shares: Sequence[float], names: int, cell: int) -> Text:
    line = Text(f"{cut(clean(name), names):<{names}}", no_wrap=True, overflow="ellipsis")
    if not cell:
        return line.append("  ").append(sparks(shares), SKY)
    for share in shares:
        if cell == _SHADED:
            line.append(f" {_shade(share):>3} ", SKY)
        number = f"{share:.2f}"
        line.append(f"{number:>{4 if cell == _SHADED else cell}}", "" if share >= 0.1 else MUTED)
    return line


def _shade(share: float) -> str:
    return next((shade for least, shade in _SHADES if share >= least), "")
