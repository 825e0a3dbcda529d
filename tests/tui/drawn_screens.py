"""Write down what a dashboard draws: its text, and where each colour and style is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from rich.segment import Segment
from textual.pilot import Pilot


def drawn_text(pilot: Pilot[None]) -> str:
    """Return the characters on the screen, without spaces at the ends of lines."""
    return "\n".join(_text(line).rstrip() for line in _lines(pilot))


def drawn_styles(pilot: Pilot[None]) -> str:
    """Return the styles on the screen by number, and each line as its runs of cells.

    ``3*40 4*80`` is a line with 40 cells of style 3 before 80 of style 4. Lines that are the same
    are written once.
    """
    numbers: dict[str, int] = {}
    rows = [_runs(line, numbers) for line in _lines(pilot)]
    shown, first = [], 1
    for runs, same in groupby(rows):
        last = first + len(list(same)) - 1
        shown.append(f"{first}-{last}: {runs}" if last > first else f"{first}: {runs}")
        first = last + 1
    return "\n".join([*(f"{number} = {style}" for style, number in numbers.items()), *shown])


def recorded(parts: Iterable[tuple[str, str]]) -> str:
    """Return pictures below their names."""
    return "\n\n".join(f"== {name}\n{picture}" for name, picture in parts)


def _lines(pilot: Pilot[None]) -> list[list[Segment]]:
    return [list(strip) for strip in pilot.app.screen._compositor.render_strips()]


def _text(line: list[Segment]) -> str:
    return "".join(segment.text for segment in line)


def _runs(line: list[Segment], numbers: dict[str, int]) -> str:
    """Return the runs of a line; styles that are new get the next number."""
    runs = []
    for style, cells in groupby(line, lambda segment: str(segment.style)):
        number = numbers.setdefault(style, len(numbers) + 1)
        runs.append(f"{number}*{sum(segment.cell_length for segment in cells)}")
    return " ".join(runs)
