"""A line chart as matplotlib draws it for a paper: one column wide, as PDF or PNG."""

from __future__ import annotations

from collections.abc import Iterable
from io import BytesIO
from textwrap import fill
from typing import Any, Literal

from edgefed.charts.lines import LineChart, finite
from edgefed.charts.svg import printable_lines
from edgefed.errors import UsageError
from edgefed.files.optional import wanted

Format = Literal["pdf", "png"]
FORMATS: tuple[Format, ...] = ("pdf", "png")

WIDTH, HEIGHT = 3.4, 2.3
"""Inches of the figure, a column of most papers; the legend is added to the height."""

MOST_LETTERS = 50
"""Letters of a line of the legend."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Okabe and Ito's colours, which people with any colour vision tell apart."""

LINES = ("-", "--", "-.", ":")
"""Styles; with seven colours, 28 curves differ from each other."""

STYLE = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "legend.frameon": False,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,  # text stays text; publishers refuse fonts of type 3
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
}


def require_matplotlib() -> Any:
    """Return matplotlib.

    Raises:
        UsageError: ``figures.missing``: it is not installed.
    """
    return wanted("matplotlib", "figures", code="figures.missing", package="matplotlib")


def formats_of(words: Iterable[str], option: str) -> list[Format]:
    """Return the formats of figures that an option names, beside SVG, which is always drawn.

    Args:
        words: the names.
        option: in the error.

    Raises:
        UsageError: there is no such format; ``figures.missing``: matplotlib is not installed.
    """
    names = {str(word).strip().lower() for word in words} - {"", "svg"}
    if unknown := sorted(names.difference(FORMATS)):
        raise UsageError(f"{option}: there is no format '{unknown[0]}'; choose svg, pdf, png.")
    formats = [format_ for format_ in FORMATS if format_ in names]
    if formats:
        require_matplotlib()
    return formats


def paper_figure(chart: LineChart, format_: Format) -> bytes:
    """Return a chart as a file; the same chart gives the same bytes.

    Raises:
        UsageError: ``figures.missing``: matplotlib is not installed.
    """
    matplotlib = require_matplotlib()
    with matplotlib.rc_context({**matplotlib.rcParamsDefault, **STYLE}):
        figure = drawn(chart)
        file = BytesIO()
        undated = {"pdf": {"CreationDate": None}, "png": {"Software": None}}[format_]
        figure.savefig(file, format=format_, dpi=300, metadata=undated)
    return file.getvalue()


def drawn(chart: LineChart) -> Any:
    """Return a chart as matplotlib's ``Figure``."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    curves = [series for series in chart.series if finite(series).points]
    names = [fill(printable_lines(series.name), MOST_LETTERS) for series in curves]
    columns = 2 if max(map(len, names), default=0) <= MOST_LETTERS // 2 else 1
    rows = sum(name.count("\n") + 1 for name in names[::columns])
    figure = Figure((WIDTH, HEIGHT + 0.15 * rows), layout="constrained")
    axes = figure.subplots()
    _draw_series(axes, chart)
    if chart.bounds:
        axes.set_ylim(min(chart.bounds), max(chart.bounds))
    if chart.level is not None:
        axes.axhline(chart.level, color="#777777", linewidth=0.6, linestyle=(0, (1, 2)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set(xlabel=chart.across, ylabel=chart.up)
    handles = axes.get_legend_handles_labels()[0]
    legend = figure.legend(handles, names, loc="outside lower center", ncols=columns)
    for text in legend.get_texts():
        text.set_parse_math(False)  # a name is no formula
    return figure


def _draw_series(axes: Any, chart: LineChart) -> None:
    for number, series in enumerate(map(finite, chart.series)):
        colour, line = COLOURS[number % len(COLOURS)], LINES[number % len(LINES)]
        if not series.points:  # its number, so its colour, stays its own
            continue
        rounds, values = zip(*series.points, strict=True)
        marker = "o" if len(rounds) == 1 else None
        axes.plot(rounds, values, color=colour, linestyle=line, marker=marker, label="curve")
        if len(series.band) > 1:
            places, low, high = zip(*series.band, strict=True)
            axes.fill_between(places, low, high, color=colour, alpha=0.15, linewidth=0)
