"""The numbers of one finished run: metrics by name, where they were measured, and targets."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

from edgefed.simulator.sweep.report import RUN_NUMBERS, ReportMetric
from edgefed.simulator.sweep.results import TrialResult

Place = Literal["", "coordinator", "devices", "both"]


def value_of(result: TrialResult, name: str) -> float | None:
    """Return a run's value of a metric; None if it has none, or its last one was not finite.

    It is the whole run's if ``name`` is one of ``RUN_NUMBERS``, otherwise that of the last round
    that measured it.
    """
    if name in RUN_NUMBERS:
        total = result.bytes_up + result.bytes_down
        return total if name == "bytes" else _number(getattr(result, name))
    if name in ("accuracy", "loss"):
        return _number(getattr(result, name))
    measured = [row[name] for row in result.history if name in row]
    return _number(measured[-1]) if measured else None


def _number(value: object) -> float | None:
    """Return a number as it is, and None for anything else."""
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def has(result: TrialResult, name: str) -> bool:
    """Return whether a run has a metric, finite or not."""
    values = (row[name] for row in result.history if name in row)
    return name in RUN_NUMBERS or any(value is None or _number(value) == value for value in values)


def has_number(result: TrialResult, name: str) -> bool:
    """Return whether a run has a finite value of a metric, in any round."""
    return name in RUN_NUMBERS or any(_number(row.get(name)) is not None for row in result.history)


def is_elsewhere(place: Place, result: TrialResult) -> bool:
    """Return whether devices alone tested a run, where values are the coordinator's."""
    return place == "coordinator" and measured_on(result) == "devices"


def names_of(results: Iterable[TrialResult]) -> list[str]:
    """Return the names of all metrics that have a number in some run."""
    names = {
        name
        for result in results
        for row in result.history
        for name, value in row.items()
        if name != "round" and _number(value) is not None
    }
    return sorted(names.union(RUN_NUMBERS))


def measured_on(result: TrialResult) -> Place:
    """Return where a run's scores without ``device_`` were measured; ``both``: each has its own.

    Where devices alone tested, a row has their scores with and without ``device_``. Losses of other
    samples are different in some round.
    """
    tested = [row for row in result.history if "device_loss" in row]
    if not tested:
        return "coordinator" if result.loss is not None else ""
    differs = any(row.get("loss") != row["device_loss"] for row in tested)
    return "both" if differs else "devices"


def rounds_to(result: TrialResult, metric: ReportMetric) -> int | None:
    """Return the first round that reaches the target of a metric; None if none does."""
    reached = (row["round"] for row in result.history if metric.reaches(row.get(metric.name)))
    return next(reached, None)


def bytes_by_round(result: TrialResult) -> dict[int, int]:
    """Return the bytes of each round and all before it, both ways."""
    total, by_round = 0, {}
    for row in result.history:
        total += row.get("sent", 0) + row.get("received", 0)
        by_round[row["round"]] = total
    return by_round


def bytes_to(result: TrialResult, metric: ReportMetric) -> int | None:
    """Return the bytes up to the first round that reaches the target of a metric, if any."""
    reached = rounds_to(result, metric)
    return None if reached is None else bytes_by_round(result)[reached]


def seconds_to(result: TrialResult, metric: ReportMetric) -> float | None:
    """Return the seconds of all rounds up to the first that reaches the target of a metric.

    They are virtual where the recipe has speeds.
    """
    reached = rounds_to(result, metric)
    if reached is None:
        return None
    return math.fsum(row["seconds"] for row in result.history if row["round"] <= reached)
