"""The tables of a run in its report and in pictures: rows, shares, series by round."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from edgefed.charts.grids import Panel, share_maps
from edgefed.charts.lines import LineChart, Series, line_chart
from edgefed.charts.rows import course_map
from edgefed.charts.svg import clean, stacked, standalone
from edgefed.events.base.method_tables import TableView
from edgefed.events.methods.share_courses import share_places, shares_of
from edgefed.report.html import scroll, section, table
from edgefed.report.run_data import RunData

MAX_CURVES = 32
"""Series of a chart that are drawn: as many as have a style of their own."""

MAX_ROWS = 300
"""Rows whose shares are drawn."""

MAX_COURSES = 30
"""Rows whose shares are drawn over the rounds."""


def table_sections(run_data: RunData) -> Iterator[str]:
    """Yield a section for each table that the run shows."""
    for view in run_data.summary.tables:
        shown, classes = view.table, class_names_of(run_data)
        texts = shown.texts(classes)
        rows = table(shown.head(), texts, range(1, len(shown.columns) + 1))
        drawn = [
            f"<h3>{clean(heading)}</h3>{scroll(picture)}"
            for heading, picture in _pictures(run_data, view)
        ]
        notes = [shown.verdict, shown.warning, rows_left_out(view), _not_drawn(view)]
        yield section(shown.name, rows, *drawn, note=". ".join(filter(None, notes)))


def tables_picture(run_data: RunData, names: Container[str], title: str) -> str:
    """Return the pictures of a run's tables of these names, as an SVG file."""
    views = (view for view in run_data.summary.tables if view.table.name in names)
    pictures = [picture for view in views for picture in _pictures(run_data, view)]
    return standalone(stacked(pictures, title=title))


def rows_left_out(view: TableView) -> str:
    """Return how many rows are shown; nothing if all are."""
    shown = len(view.table.rows)
    return f"The first {shown} of {shown + view.left_out} rows are shown" if view.left_out else ""


def class_names_of(run_data: RunData) -> Sequence[str]:
    """Return the classes of a run in order; none where labels are plain integers."""
    return tuple(run_data.record.get("class_names") or ())


def _not_drawn(view: TableView) -> str:
    """Return which part of the table is drawn; nothing if all is."""
    curves = sum(row.key in view.table.series for row in view.table.rows)
    if curves > MAX_CURVES:
        return f"The first {MAX_CURVES} of {curves} rows are drawn by round"
    rows = len(shares_of(view.table))
    return f"The shares of the first {MAX_ROWS} of {rows} rows are drawn" if rows > MAX_ROWS else ""


def _pictures(run_data: RunData, view: TableView) -> Iterator[tuple[str, str]]:
    """Yield headings and pictures: shares now and by round, and the series by round."""
    shown, classes, name = view.table, class_names_of(run_data), view.table.name
    columns = [shown.columns[place].name for place in share_places(shown)]
    if rows := shares_of(shown)[:MAX_ROWS]:
        names = [shown.key_text(key, classes) for key, _ in rows]
        panel = Panel("", [shares for _, shares in rows])
        heading = f"{name}: shares of each {shown.key}"
        yield heading, share_maps([panel], names, columns, title=heading)
    courses = [course for course in run_data.summary.courses if course.table == name]
    if courses and columns:
        drawn = [(shown.key_text(course.key, classes), course.points) for course in courses]
        heading = f"{name}: shares of each {shown.key} by round"
        yield heading, course_map(drawn[:MAX_COURSES], columns, title=heading)
    yield from _curves(view)


def _curves(view: TableView) -> Iterator[tuple[str, str]]:
    """Yield a chart of the series that belong to rows, and one of the others."""
    keys = [row.key for row in view.table.rows]
    names = dict.fromkeys(name for point in view.history for name in point.values)
    of_rows = [key for key in keys if key in names]
    others = [name for name in names if name not in set(keys)]
    more = ", ".join(others)
    for heading, group in (
        (f"{view.table.name} by round", of_rows),
        (f"{view.table.name}{f': {more}' if of_rows else ''} by round", others),
    ):
        curves = [
            Series(name, [(point.round, point.values.get(name)) for point in view.history])
            for name in group[:MAX_CURVES]
        ]
        if curves:
            yield heading, line_chart(LineChart(heading, curves))
