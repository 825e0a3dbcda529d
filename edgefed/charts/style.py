"""The colours of charts, for light and dark pages."""

from __future__ import annotations

from collections.abc import Sequence

LIGHT = ("#1d5fb8", "#c2410c", "#15803d", "#7e22ce", "#a16207", "#0e7490", "#be185d", "#4b5563")
DARK = ("#7ab3f5", "#fb923c", "#4ade80", "#c9a2ff", "#facc15", "#22d3ee", "#f77cb5", "#b0b7c3")
"""One colour a series; further series begin again with broken lines."""

DASHES = ("", "7 3", "2 3", "9 3 2 3")


def stylesheet() -> str:
    """Return the rules that a page or a picture needs for its charts."""
    dark = f"{_base('#c9d1d9', '#2d333b', '#8b949e')}{_series(DARK)}"
    return (
        ".chart text{font:12px system-ui,-apple-system,'Segoe UI',sans-serif}"
        ".chart .line{fill:none;stroke-width:2;stroke-linejoin:round}"
        ".chart .band{fill-opacity:.16}.chart .grid,.chart .axis{fill:none}"
        ".chart .end{text-anchor:end}.chart .middle{text-anchor:middle}"
        f"{_base('#24292f', '#e3e7ec', '#68717b')}{_series(LIGHT)}"
        f"@media (prefers-color-scheme:dark){{{dark}}}"
    )


def series_class(number: int) -> str:
    """Return the class of a series' line, counted from 0."""
    return f"s{number % len(LIGHT)}"


def fill_class(number: int) -> str:
    """Return the class of what is filled in a series' colour."""
    return f"f{number % len(LIGHT)}"


def dashes(number: int) -> str:
    """Return the dash pattern of a series; empty for a solid line."""
    return DASHES[number // len(LIGHT) % len(DASHES)]


def _base(ink: str, grid: str, quiet: str) -> str:
    return (
        f".chart text{{fill:{ink}}}.chart .quiet{{fill:{quiet}}}"
        f".chart .grid{{stroke:{grid}}}.chart .axis{{stroke:{quiet}}}"
    )


def _series(colours: Sequence[str]) -> str:
    return "".join(
        f".chart .s{k}{{stroke:{colour}}}.chart .f{k}{{fill:{colour}}}"
        for k, colour in enumerate(colours)
    )
