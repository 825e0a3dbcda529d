"""The tables of a run's method in its HTML report: rows, and charts of the series by round."""

from __future__ import annotations

from collections.abc import Iterator

from edgefed.charts.lines import LineChart, Series, line_chart
from edgefed.events.method_tables import TableView
from edgefed.report.html import section, table
from edgefed.report.run_data import RunData

MAX_CURVES = 32
"""Series of a table that are drawn: as many as have a style of their own."""


def table_sections(run_data: RunData) -> Iterator[str]:
    """Yield a section for each table that the run's method shows."""
    for view in run_data.summary.tables:
        shown = view.table
        rows = table(shown.head(), shown.texts(), range(1, len(shown.columns) + 1))
        notes = [shown.verdict, rows_left_out(view)]
        charts = [line_chart(_chart(view))] if view.history else []
        yield section(shown.name, rows, *charts, note=". ".join(filter(None, notes)))


def rows_left_out(view: TableView) -> str:
    """Return how many rows are shown; nothing if all are."""
    shown = len(view.table.rows)
    return f"The first {shown} of {shown + view.left_out} rows are shown" if view.left_out else ""


def _chart(view: TableView) -> LineChart:
    names = list(dict.fromkeys(name for point in view.history for name in point.values))
    curves = [
        Series(name, [(point.round, point.values.get(name)) for point in view.history])
        for name in names[:MAX_CURVES]
    ]
    return LineChart(f"{view.table.name} by round", curves)
