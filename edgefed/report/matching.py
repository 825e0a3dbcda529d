"""The matched layers of a run: a table of the last matching, and charts of widths and growth."""

from __future__ import annotations

from collections.abc import Iterator

from edgefed.charts.lines import LineChart, Series, line_chart
from edgefed.charts.svg import stacked, standalone
from edgefed.events.layer_table import (
    LAYER_HEAD,
    layer_cells,
    layer_names,
    layers_left_out,
    width_of,
)
from edgefed.events.matching_history import MatchingHistory
from edgefed.report.html import section, table, tiles
from edgefed.report.run_data import RunData

MAX_CURVES = 32
"""Layers whose widths are drawn, which is as many as have a look of their own."""


def growth_by_round(run_data: RunData) -> list[tuple[int, float]]:
    """Return the growth of the global model after each finished round that has one."""
    rows = run_data.rounds
    return [(row["round"], row["growth"]) for row in rows if row.get("growth") is not None]


def matching_picture(run_data: RunData, history: MatchingHistory) -> str:
    """Return the charts as an SVG file."""
    title = f"Matched layers of run {run_data.record['run']}"
    return standalone(stacked(list(_charts(run_data, history)), title=title))


def matching_section(run_data: RunData) -> str:
    """Return the report's section about matched layers; nothing for a run without any."""
    history = run_data.summary.matching
    if history is None:
        return ""
    now = history.now
    numbers = tiles(
        [
            ("matched in round", str(now.round or "")),
            ("layers", f"{now.matched} / {now.total}"),
            ("devices", str(now.devices or "")),
            ("growth", "" if now.growth is None else f"{now.growth:.3f}"),
        ]
    )
    rows = [layer_cells(name, row) for name, row in zip(layer_names(now), now.layers, strict=True)]
    head = [word.lower() for word in LAYER_HEAD]
    layers = table(head, rows, range(1, len(head)))
    drawn = [f"<h3>{heading}</h3>{chart}" for heading, chart in _charts(run_data, history)]
    notes = [layers_left_out(now)]
    if len(now.layers) > MAX_CURVES:
        notes.append(f"The widths of the first {MAX_CURVES} layers are drawn.")
    return section("Matched layers", numbers, layers, *drawn, note=" ".join(filter(None, notes)))


def _charts(run_data: RunData, history: MatchingHistory) -> Iterator[tuple[str, str]]:
    """Yield heading and chart; headings are text of our own, without anything to escape."""
    widths = [
        Series(name, [(row.round, width_of(row, number)) for row in history.rounds])
        for number, name in enumerate(layer_names(history.now)[:MAX_CURVES])
    ]
    chart = LineChart("atoms of each layer by round", widths, bounds=(0.0,), height=240)
    yield "Width of each layer of the global model by round", line_chart(chart)
    growth = growth_by_round(run_data)
    if growth:
        chart = LineChart("growth by round", [Series("growth", growth)], bounds=(1.0,), height=200)
        yield (
            "Growth: parameters of the global model for each parameter of a device",
            line_chart(chart),
        )
