"""Pictures of a run's experts: q(z|y) and the devices' mixtures, now and over the rounds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgefed.charts.grids import Panel, share_maps
from edgefed.charts.lines import LineChart, Series, line_chart
from edgefed.charts.rows import course_map
from edgefed.charts.svg import stacked, standalone
from edgefed.events.class_names import label_names
from edgefed.events.expert_events import problem_in_words
from edgefed.events.expert_history import ExpertHistory
from edgefed.events.thinned import evenly_spaced
from edgefed.report.html import scroll, section, tiles
from edgefed.report.run_data import RunData

MAX_ROWS = 300
"""Devices that a picture has a row for."""

MAX_COURSES = 30
"""Devices whose mixtures are drawn over the rounds."""

_TABLES = 5
"""Rounds whose tables are drawn."""


def expert_names(history: ExpertHistory) -> list[str]:
    """Return the names of the experts."""
    return [f"e{expert}" for expert in range(history.now.experts)]


def row_names(history: ExpertHistory, class_names: Sequence[str]) -> list[str]:
    """Return the names of the table's rows: the classes, or the values of a column."""
    names = class_names if history.now.condition == "label" else ()
    return label_names(names, len(history.now.table))


def class_names_of(run_data: RunData) -> Sequence[str]:
    """Return the classes of a run in order; none where labels are plain integers."""
    return tuple(run_data.record.get("class_names") or ())


def experts_picture(run_data: RunData, history: ExpertHistory) -> str:
    """Return all pictures of a run's experts as an SVG file."""
    title = f"Experts of run {run_data.record['run']}"
    return standalone(stacked(list(_pictures(run_data, history)), title=title))


def experts_section(run_data: RunData) -> str:
    """Return the report's section about experts; nothing for a run without any."""
    history = run_data.summary.experts
    if history is None:
        return ""
    now = history.now
    numbers = tiles(
        [
            ("experts", str(now.experts)),
            ("chosen by", now.condition),
            ("entropy of the load", "" if now.entropy is None else f"{now.entropy:.3f} nats"),
            ("warning", problem_in_words(now)),
        ]
    )
    drawn = [
        f"<h3>{heading}</h3>{scroll(picture)}" for heading, picture in _pictures(run_data, history)
    ]
    return section("Experts", numbers, *drawn, note=_left_out(history))


def _left_out(history: ExpertHistory) -> str:
    told = []
    if history.now.labels > len(history.now.table):
        told.append(f"The first {len(history.now.table)} of {history.now.labels} rows are shown.")
    devices = len(history.mixtures) + history.more_mixtures
    if devices > MAX_ROWS:
        told.append(f"The first {MAX_ROWS} of {devices} devices are shown.")
    return " ".join(told)


def _pictures(run_data: RunData, history: ExpertHistory) -> Iterator[tuple[str, str]]:
    """Yield heading and picture; both are text of our own, without anything to escape."""
    columns = expert_names(history)
    if history.tables:
        names = row_names(history, class_names_of(run_data))
        panels = [
            Panel(f"round {table.round}", table.rows)
            for table in evenly_spaced(history.tables, _TABLES)
        ]
        drawn = share_maps(panels, names, columns, title="q(z|y) by round")
        yield "Shares of the experts for each label or value, q(z|y)", drawn
    if history.mixtures:
        shown = history.mixtures[:MAX_ROWS]
        panel = Panel("", [mixture.shares for mixture in shown])
        names = [mixture.device for mixture in shown]
        drawn = share_maps([panel], names, columns, title="q(z|s) by device")
        yield "Shares of the experts on each device, q(z|s)", drawn
    if history.courses:
        rows = [(course.device, course.points) for course in history.courses[:MAX_COURSES]]
        yield (
            "Shares of the experts on each device, by round",
            course_map(rows, columns, title="q(z|s) by device and round"),
        )
    loads = [
        Series(name, [(row.round, row.load[expert]) for row in history.loads if row.load])
        for expert, name in enumerate(columns)
    ]
    chart = LineChart("load of the experts", loads, bounds=(0.0, 1.0))
    yield (
        "Load of the experts: share of the samples of the devices that answered",
        line_chart(chart),
    )
