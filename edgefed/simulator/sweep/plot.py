"""Accuracy of every case over rounds or bytes: mean and standard deviation over seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from edgefed.charts.lines import LineChart, Series, line_chart
from edgefed.charts.svg import standalone
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.results import TrialResult
from edgefed.simulator.sweep.run_values import bytes_by_round
from edgefed.simulator.sweep.statistics import Spread, spread
from edgefed.simulator.sweep.trials import TrialOutcome
from edgefed.terminal.units import size

MAX_CURVES = 24
"""Cases that one picture can tell apart; the first ones."""


def accuracy_plot(
    plan: Plan, outcome: TrialOutcome, across: Literal["round", "bytes"] = "round"
) -> str:
    """Return the chart as an SVG file.

    Args:
        plan: its cases are the curves.
        outcome: the results.
        across: the horizontal axis; ``bytes`` are those of all rounds so far, both ways, as a mean
            over seeds.
    """
    trials = list(plan.trials())
    series = []
    for case in plan.cases[:MAX_CURVES]:
        own = (trial.digest for trial in trials if trial.case is case)
        results = [outcome.results[digest] for digest in own if digest in outcome.results]
        series.append(_series(case.name, results, across))
    chart = LineChart(
        f"accuracy by {across}: mean and standard deviation over seeds",
        series,
        bounds=(0.0, 1.0),
        level=plan.target,
        across=across,
        binary=size if across == "bytes" else None,
        width=860,
        height=420,
    )
    return standalone(line_chart(chart))


def _series(name: str, results: Sequence[TrialResult], across: str) -> Series:
    scores = list(_rounds(results))
    if across == "bytes":
        sent = _bytes(results)
        scores = [(sent[number], score) for number, score in scores]
    points = [(number, score.mean) for number, score in scores]
    band = [
        (number, max(0.0, score.mean - score.deviation), min(1.0, score.mean + score.deviation))
        for number, score in scores
        if score.mean is not None and score.deviation is not None
    ]
    return Series(name, points, band)


def _rounds(results: Sequence[TrialResult]) -> Iterator[tuple[int, Spread]]:
    """Yield each tested round with the spread of its accuracy over seeds."""
    scores: dict[int, list[float]] = {}
    for result in results:
        for row in result.history:
            if row.get("accuracy") is not None:
                scores.setdefault(row["round"], []).append(row["accuracy"])
    for number in sorted(scores):
        yield number, spread(scores[number])


def _bytes(results: Sequence[TrialResult]) -> Mapping[int, int]:
    """Return the bytes up to the end of each round, as a whole mean over seeds."""
    by_round: dict[int, list[int]] = {}
    for result in results:
        for number, count in bytes_by_round(result).items():
            by_round.setdefault(number, []).append(count)
    return {number: sum(counts) // len(counts) for number, counts in by_round.items()}
