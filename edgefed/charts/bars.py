"""Horizontal bar charts: one bar for each row, with an optional range."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from edgefed.charts.scale import Scale
from edgefed.charts.svg import clean, element, label, picture

ROW = 20
LETTER = 7.2


@dataclass(frozen=True)
class Bar:
    """A row.

    Attributes:
        low, high: ends of its range, equal where there is none.
    """

    name: str
    value: float
    low: float = 0.0
    high: float = 0.0


def bar_chart(
    bars: Sequence[Bar],
    shown: Callable[[float], str],
    *,
    title: str,
    colour: int = 0,
    width: int = 720,
) -> str:
    """Return the bars as an ``svg`` element, in the order given."""
    left = min(240.0, 16 + LETTER * max((len(bar.name) for bar in bars), default=0))
    top = max((max(bar.value, bar.high) for bar in bars), default=0.0)
    axis = Scale(0.0, top or 1.0, left, width - 90.0)
    parts = [part for row, bar in enumerate(bars) for part in _row(row, bar, axis, shown, colour)]
    return picture(width, max(ROW, ROW * len(bars)), parts, title=title)


def _row(
    row: int, bar: Bar, axis: Scale, shown: Callable[[float], str], colour: int
) -> Iterator[str]:
    y, end = row * ROW, axis.at(bar.value)
    yield label(axis.start - 8, y + 14, _short(bar.name), "end")
    told = element("title", clean(f"{bar.name}: {shown(bar.value)}"))
    yield element(
        "rect",
        told,
        x=axis.start,
        y=y + 4,
        height=12,
        width=max(1.0, end - axis.start),
        rx=2,
        class_=f"f{colour}",
    )
    if bar.high > bar.low:
        low, end = axis.at(bar.low), max(end, axis.at(bar.high))
        high = axis.at(bar.high)
        path = f"M{low:.1f} {y + 10}H{high:.1f}M{low:.1f} {y + 7}v6M{high:.1f} {y + 7}v6"
        yield element("path", d=path, class_="axis")
    yield label(end + 6, y + 14, shown(bar.value), "quiet")


def _short(name: str) -> str:
    return name if len(name) <= 30 else f"{name[:29]}…"
