"""Axes of charts: steps and places of values, names of rows, and legends."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from edgefed.charts.svg import label

LETTER = 7.2
"""Pixels that a letter is given."""

NARROW = 1e-9
"""Values that differ by less than this share of themselves are drawn as one."""

SMALLEST = 1e-300
"""Or by less than this, of which no step can be made."""


@dataclass(frozen=True)
class Scale:
    """A straight axis.

    Attributes:
        low, high: values at its ends.
        start, end: pixels at its ends.
    """

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the pixel of a value."""
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about ``count`` round values that span ``low`` to ``high``, both within."""
    size = max(abs(low), abs(high))
    if high - low <= max(size * NARROW, SMALLEST):
        around = size / 2 if size > SMALLEST else 0.5
        low, high = low - around, high + around
    raw = (high - low) / max(1, count - 1)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def whole_ticks(low: int, high: int, count: int) -> list[float]:
    """Return whole values within ``low`` and ``high`` alone, for rounds."""
    if high <= low:
        return [float(low)]
    step = max(1.0, ticks(low, high, count)[1] - ticks(low, high, count)[0])
    step = float(math.ceil(step))
    inside = [step * k for k in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return [value for value in inside if value] or [float(low)]


def plain(value: float) -> str:
    """Return a value of an axis in few characters."""
    return f"{value:.6g}" if abs(value) < 1e6 else f"{value:.1e}"


def shortened(name: str, most: int) -> str:
    """Return a name of at most this many characters."""
    return name if len(name) <= most else f"{name[: most - 1]}…"


def margin(names: Iterable[str], most: int) -> float:
    """Return the pixels that the longest of the shortened names needs beside its row."""
    return 16 + LETTER * max((min(most, len(name)) for name in names), default=0)


def legend(
    names: Sequence[str],
    span: tuple[float, float],
    top: float,
    mark: Callable[[int, float, float], str],
    room: int,
) -> tuple[int, list[str]]:
    """Return the height of a legend in pixels, and its elements.

    Args:
        names: of all parts.
        span: the left and the right end of its lines.
        top: where it begins.
        mark: returns the mark of a part by its number, its left end and its middle.
        room: width of a mark with the gap after it.
    """
    drawn, x, line = list[str](), span[0], 0
    for number, name in enumerate(names):
        needed = room + 16 + LETTER * len(name)
        if x > span[0] and x + needed > span[1]:
            x, line = span[0], line + 1
        middle = top + 20 * line + 10
        drawn += mark(number, x, middle), label(x + room, middle + 4, name)
        x += needed
    return 20 * (line + 1) if names else 0, drawn
