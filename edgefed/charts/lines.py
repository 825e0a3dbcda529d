"""Curves over rounds, or over bytes, each with an optional band around it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from edgefed.charts.axes import Scale, legend, plain, ticks, whole_ticks
from edgefed.charts.svg import (
    clean,
    dashes,
    element,
    fill_class,
    label,
    picture,
    points,
    series_class,
)

MAX_POINTS = 1000
"""Points of a curve that are drawn; of more, every so many."""

LARGEST = 1e300
"""What is beyond it, infinite or no number at all is left out, as a diverged loss is."""

LEFT = 64.0
"""Where the horizontal axis begins, in pixels."""

Point = tuple[int, float | None]


@dataclass(frozen=True)
class Series:
    """One curve.

    Attributes:
        points: round, or number of bytes, and value; one without a value is left out.
        band: round or number of bytes, lower and upper value.
        hollow: rounds that are marked by a hollow point.
    """

    name: str
    points: Sequence[Point]
    band: Sequence[tuple[int, float, float]] = ()
    hollow: Collection[int] = ()


@dataclass(frozen=True)
class LineChart:
    """The description of a chart.

    Attributes:
        bounds: values that the axis has to reach, such as 0 and 1.
        shown: how a value of the axis is written.
        base: ratio of units: 10, or 1024 for bytes, so that steps are round in all of them.
        level: a value to mark with a broken line.
        across: name of the horizontal axis.
        up: name of the vertical axis, with its unit; empty for none.
        binary: how a place on that axis is written, in units of powers of 1024; None for rounds,
            which are whole numbers.
    """

    title: str
    series: Sequence[Series]
    bounds: tuple[float, ...] = ()
    shown: Callable[[float], str] = plain
    base: int = 10
    level: float | None = None
    across: str = "round"
    up: str = ""
    binary: Callable[[float], str] | None = None
    width: int = 720
    height: int = 280


def line_chart(chart: LineChart) -> str:
    """Return a chart as an ``svg`` element; without any value it says so."""
    drawn = [_thinned(finite(series)) for series in chart.series]
    if not any(series.points for series in drawn):
        return picture(
            chart.width, 40, [label(8, 24, "nothing was measured", "quiet")], title=chart.title
        )
    curves = [number for number, series in enumerate(drawn) if series.points]
    names = [drawn[number].name for number in curves] if len(drawn) > 1 else []

    def mark(place: int, x: float, y: float) -> str:
        return _mark(curves[place], x, y)

    below, named = legend(names, (LEFT, chart.width), chart.height, mark, 28)
    y_axis, y_ticks = _y_axis(chart, drawn)
    x_axis, x_ticks = _x_axis(chart, drawn)
    parts = [
        *_grid(chart, y_axis, y_ticks, x_axis, x_ticks),
        *(_band(number, series, x_axis, y_axis) for number, series in enumerate(drawn)),
        *(_line(number, series, x_axis, y_axis) for number, series in enumerate(drawn)),
        *(_hollow(number, series, x_axis, y_axis) for number, series in enumerate(drawn)),
        *named,
    ]
    return picture(chart.width, chart.height + below, parts, title=chart.title)


def finite(series: Series) -> Series:
    """Return a series without points and bands that cannot be drawn."""
    good = [(x, y) for x, y in series.points if y is not None and abs(y) <= LARGEST]
    band = [bounds for bounds in series.band if all(abs(value) <= LARGEST for value in bounds)]
    return replace(series, points=good, band=band)


def _thinned(series: Series) -> Series:
    every = math.ceil(len(series.points) / MAX_POINTS) or 1
    shown = [*series.points[:-1:every], *series.points[-1:]]
    band = [*series.band[:-1:every], *series.band[-1:]]
    return replace(series, points=shown, band=band)


def _y_axis(chart: LineChart, drawn: Sequence[Series]) -> tuple[Scale, list[float]]:
    values = [y for series in drawn for _, y in series.points if y is not None]
    values += [value for series in drawn for _, low, high in series.band for value in (low, high)]
    values += chart.bounds
    power = math.floor(math.log(max(map(abs, values), default=1.0) or 1.0, chart.base))
    unit = float(chart.base) ** power if chart.base != 10 else 1.0
    steps = [unit * step for step in ticks(min(values) / unit, max(values) / unit, 6)]
    return Scale(steps[0], steps[-1], chart.height - 40.0, 12.0), steps


def _x_axis(chart: LineChart, drawn: Sequence[Series]) -> tuple[Scale, list[float]]:
    places = [x for series in drawn for x, _ in series.points]
    low, high = min(places), max(places)
    axis = Scale(low, high, LEFT, chart.width - 20.0)
    if chart.binary is None:
        return axis, whole_ticks(low, high, 9)
    unit = 1024 ** int(math.log(max(high, 1), 1024))
    steps = [unit * step for step in ticks(low / unit, high / unit, 9)]
    return axis, [step for step in steps if low <= step <= high]


def _grid(
    chart: LineChart, y_axis: Scale, y_ticks: list[float], x_axis: Scale, x_ticks: list[float]
) -> Iterator[str]:
    left, right, floor = x_axis.start, x_axis.end, y_axis.start
    for value in y_ticks:
        y = y_axis.at(value)
        yield element("path", d=f"M{left:.1f} {y:.1f}H{right:.1f}", class_="grid")
        yield label(left - 8, y + 4, chart.shown(value), "end quiet")
    for value in x_ticks:
        x = x_axis.at(value)
        yield element("path", d=f"M{x:.1f} {floor:.1f}v4", class_="axis")
        shown = f"{value:.0f}" if chart.binary is None else chart.binary(value)
        yield label(x, floor + 17, shown, "middle quiet")
    yield element("path", d=f"M{left:.1f} {floor:.1f}H{right:.1f}", class_="axis")
    yield label((left + right) / 2, floor + 33, chart.across, "middle quiet")
    if chart.up:
        turn = f"translate(12 {(floor + y_axis.end) / 2:.1f}) rotate(-90)"
        yield element("g", label(0, 0, chart.up, "middle quiet"), transform=turn)
    if chart.level is not None and y_axis.low <= chart.level <= y_axis.high:
        y = y_axis.at(chart.level)
        path = f"M{left:.1f} {y:.1f}H{right:.1f}"
        yield element("path", d=path, class_="axis", stroke_dasharray="3 4")
        yield label(right, y - 5, f"target {chart.shown(chart.level)}", "end quiet")


def _line(number: int, series: Series, x_axis: Scale, y_axis: Scale) -> str:
    places = [(x_axis.at(x), y_axis.at(y)) for x, y in series.points if y is not None]
    if len(places) == 1:
        ((x, y),) = places
        return element("circle", cx=x, cy=y, r=3, class_=fill_class(number))
    return (
        element(
            "polyline",
            element("title", clean(series.name)),
            points=points(places),
            class_=f"line {series_class(number)}",
            stroke_dasharray=dashes(number),
        )
        if places
        else ""
    )


def _hollow(number: int, series: Series, x_axis: Scale, y_axis: Scale) -> str:
    class_ = f"line {series_class(number)}"
    return "".join(
        element("circle", cx=x_axis.at(x), cy=y_axis.at(y), r=4, class_=class_)
        for x, y in series.points
        if x in series.hollow and y is not None
    )


def _band(number: int, series: Series, x_axis: Scale, y_axis: Scale) -> str:
    if len(series.band) < 2:
        return ""
    upper = [(x_axis.at(x), y_axis.at(high)) for x, _, high in series.band]
    lower = [(x_axis.at(x), y_axis.at(low)) for x, low, _ in reversed(series.band)]
    class_ = f"band {fill_class(number)}"
    return element("polygon", points=points([*upper, *lower]), class_=class_)


def _mark(number: int, x: float, y: float) -> str:
    path, class_ = f"M{x:.1f} {y}h22", f"line {series_class(number)}"
    return element("path", d=path, class_=class_, stroke_dasharray=dashes(number))
