"""A metric of every case over rounds or bytes: mean and standard deviation over seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from edgefed.charts.lines import LineChart, Series, line_chart
from edgefed.charts.paper_figure import Format, paper_figure
from edgefed.charts.svg import standalone
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.report import accuracy_metric
from edgefed.simulator.sweep.results import TrialResult
from edgefed.simulator.sweep.run_values import bytes_by_round, is_elsewhere
from edgefed.simulator.sweep.statistics import Spread, spread
from edgefed.simulator.sweep.table import SweepColumn, value_column
from edgefed.simulator.sweep.trials import TrialOutcome
from edgefed.terminal.units import size

MAX_CURVES = 24
"""Cases that one picture can tell apart; the first ones."""
ACCURACY = value_column(accuracy_metric())


def figures(
    plan: Plan,
    outcome: TrialOutcome,
    columns: Sequence[SweepColumn],
    formats: Sequence[Format] = (),
) -> dict[str, bytes]:
    """Return the pictures of columns by file name: ``METRIC.svg``, and those of other formats.

    Raises:
        UsageError: ``figures.missing``: other formats need matplotlib, which is not installed.
    """
    files = {}
    for column in columns:
        chart = metric_chart(plan, outcome, column)
        files[f"{column.key}.svg"] = standalone(line_chart(chart)).encode()
        for format_ in formats:
            files[f"{column.key}.{format_}"] = paper_figure(chart, format_)
    return files


def accuracy_plot(
    plan: Plan, outcome: TrialOutcome, across: Literal["round", "bytes"] = "round"
) -> str:
    """Return the chart of the accuracy as an SVG file; see ``metric_chart``."""
    return standalone(line_chart(metric_chart(plan, outcome, ACCURACY, across)))


def metric_chart(
    plan: Plan,
    outcome: TrialOutcome,
    column: SweepColumn,
    across: Literal["round", "bytes"] = "round",
) -> LineChart:
    """Return the chart of a metric.

    Args:
        plan: its cases are the curves.
        outcome: the results.
        column: a number of the rounds, such as ``accuracy`` or ``train_loss``.
        across: the horizontal axis; ``bytes`` are those of all rounds so far, both ways, as a mean
            over seeds.
    """
    trials, metric = list(plan.trials()), column.key
    bounds = (0.0, 1.0) if "accuracy" in metric else ()
    series = []
    for case in plan.cases[:MAX_CURVES]:
        own = (trial.digest for trial in trials if trial.case is case)
        finished = (outcome.results[digest] for digest in own if digest in outcome.results)
        results = [result for result in finished if not is_elsewhere(column.place, result)]
        series.append(_series(case.name, results, metric, across, bounds))
    label = f"{column.label} (bytes)" if metric in ("sent", "received") else column.label
    return LineChart(
        f"{label} by {across}: mean and standard deviation over seeds",
        series,
        bounds=bounds,
        level=plan.target if metric == "accuracy" else None,
        across=across,
        up=label,
        binary=size if across == "bytes" else None,
        width=860,
        height=420,
    )


def _series(
    name: str,
    results: Sequence[TrialResult],
    metric: str,
    across: str,
    bounds: tuple[float, ...],
) -> Series:
    scores = list(_rounds(results, metric))
    if across == "bytes":
        sent = _bytes(results)
        scores = [(sent[number], score) for number, score in scores]
    # A mean plus its deviation may leave the metric's range, such as an accuracy above 1
    low, high = bounds or (-math.inf, math.inf)
    points = [(number, score.mean) for number, score in scores]
    band = [
        (number, max(low, score.mean - score.deviation), min(high, score.mean + score.deviation))
        for number, score in scores
        if score.mean is not None and score.deviation is not None
    ]
    return Series(name, points, band)


def _rounds(results: Sequence[TrialResult], metric: str) -> Iterator[tuple[int, Spread]]:
    """Yield each round that has the metric with its spread over seeds."""
    scores: dict[int, list[float]] = {}
    for result in results:
        for row in result.history:
            value = row.get(metric)
            if isinstance(value, (int, float)):
                scores.setdefault(row["round"], []).append(value)
    for number in sorted(scores):
        yield number, spread(scores[number])


def _bytes(results: Sequence[TrialResult]) -> Mapping[int, int]:
    """Return the bytes up to the end of each round, as a whole mean over seeds."""
    by_round: dict[int, list[int]] = {}
    for result in results:
        for number, count in bytes_by_round(result).items():
            by_round.setdefault(number, []).append(count)
    return {number: sum(counts) // len(counts) for number, counts in by_round.items()}
