"""A sweep's results as one table: mean and standard deviation over seeds, one row per case."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.results import TrialResult
from edgefed.simulator.sweep.trials import TrialOutcome
from edgefed.terminal.units import duration, size

COLUMNS = ("accuracy", "loss", "bytes", "seconds", "rounds_to_target", "seconds_to_target")


@dataclass(frozen=True)
class Spread:
    """Values over seeds.

    Attributes:
        mean: None of no value.
        deviation: sample standard deviation (n − 1); None of fewer than two values.
        count: how many values.
    """

    mean: float | None
    deviation: float | None
    count: int


def spread(values: Sequence[float]) -> Spread:
    """Return mean and deviation of values."""
    if not values:
        return Spread(None, None, 0)
    mean = math.fsum(values) / len(values)
    if len(values) < 2:
        return Spread(mean, None, 1)
    square = math.fsum((value - mean) ** 2 for value in values)
    return Spread(mean, math.sqrt(square / (len(values) - 1)), len(values))


@dataclass(frozen=True)
class CaseRow:
    """One case of the table.

    Attributes:
        runs, failed: finished and failed runs.
        values: a spread for each of ``COLUMNS``.
    """

    case: str
    settings: Mapping[str, Any]
    runs: int
    failed: int
    values: Mapping[str, Spread]

    def to_json(self) -> dict[str, Any]:
        """Return the row as ``--json`` and ``table.json`` have it."""
        return {
            "case": self.case,
            "settings": dict(self.settings),
            "runs": self.runs,
            "failed": self.failed,
            **{name: asdict(self.values[name]) for name in COLUMNS},
        }


def case_rows(plan: Plan, outcome: TrialOutcome) -> list[CaseRow]:
    """Return a row for each case, in the order of the sweep."""
    trials = list(plan.trials())
    rows = []
    for case in plan.cases:
        own = [trial.digest for trial in trials if trial.case is case]
        results = [outcome.results[digest] for digest in own if digest in outcome.results]
        failed = sum(digest in outcome.failures for digest in own)
        numbers = [_numbers(result, plan.target) for result in results]
        values = {
            name: spread([row[name] for row in numbers if row.get(name) is not None])
            for name in COLUMNS
        }
        rows.append(CaseRow(case.name, case.settings, len(results), failed, values))
    return rows


def rounds_to(result: TrialResult, target: float | None) -> int | None:
    """Return the first round whose accuracy is at least ``target``; None if none is."""
    if target is None:
        return None
    reached = (
        row["round"]
        for row in result.history
        if row.get("accuracy") is not None and row["accuracy"] >= target
    )
    return next(reached, None)


def bytes_by_round(result: TrialResult) -> dict[int, int]:
    """Return the bytes of each round and all before it, both ways."""
    total, by_round = 0, {}
    for row in result.history:
        total += row.get("sent", 0) + row.get("received", 0)
        by_round[row["round"]] = total
    return by_round


def bytes_to(result: TrialResult, target: float | None) -> int | None:
    """Return the bytes up to the first round whose accuracy is at least ``target``, if any."""
    reached = rounds_to(result, target)
    return None if reached is None else bytes_by_round(result)[reached]


def seconds_to(result: TrialResult, target: float | None) -> float | None:
    """Return the seconds of all rounds up to the first whose accuracy is at least ``target``.

    They are virtual where the recipe has speeds.
    """
    reached = rounds_to(result, target)
    if reached is None:
        return None
    return math.fsum(row["seconds"] for row in result.history if row["round"] <= reached)


def _numbers(result: TrialResult, target: float | None) -> dict[str, Any]:
    return {
        "accuracy": result.accuracy,
        "loss": result.loss,
        "bytes": result.bytes_up + result.bytes_down,
        "seconds": result.seconds,
        "rounds_to_target": rounds_to(result, target),
        "seconds_to_target": seconds_to(result, target),
    }


# -- as text --------------------------------------------------------------------------------------


def text_rows(rows: Sequence[CaseRow], target: float | None) -> list[tuple[str, ...]]:
    """Return the table for people; ``to 0.8`` holds rounds and the number of seeds."""
    more = () if target is None else (f"ROUNDS TO {target:g}", f"TIME TO {target:g}")
    head = ("CASE", "RUNS", "ACCURACY", "LOSS", "BYTES", "TIME", *more)
    return [head, *(_text_row(row, target) for row in rows)]


def _text_row(row: CaseRow, target: float | None) -> tuple[str, ...]:
    values = row.values
    cells = [
        row.case,
        f"{row.runs}, {row.failed} failed" if row.failed else str(row.runs),
        _spoken(values["accuracy"], "{:.4f}".format),
        _spoken(values["loss"], "{:.4f}".format),
        _spoken(values["bytes"], size),
        _spoken(values["seconds"], duration),
    ]
    if target is not None:
        reached = values["rounds_to_target"]
        of = f"  ({reached.count} of {row.runs})" if reached.count < row.runs else ""
        cells.append((_spoken(reached, "{:.1f}".format) or "never") + of)
        cells.append(_spoken(values["seconds_to_target"], duration))
    return tuple(cells)


def _spoken(value: Spread, shown: Callable[[float], str]) -> str:
    if value.mean is None:
        return ""
    return shown(value.mean) + ("" if value.deviation is None else f" ± {shown(value.deviation)}")


# -- as files -------------------------------------------------------------------------------------


def cases_csv(rows: Sequence[CaseRow]) -> str:
    """Return ``table.csv``: a row a case, two columns a value."""
    keys = list(dict.fromkeys(key for row in rows for key in row.settings))
    flat = [
        {
            "case": row.case,
            **{key: row.settings.get(key, "") for key in keys},
            "runs": row.runs,
            "failed": row.failed,
            **{f"{name}_mean": row.values[name].mean for name in COLUMNS},
            **{f"{name}_std": row.values[name].deviation for name in COLUMNS},
            "reached_target": row.values["rounds_to_target"].count,
        }
        for row in rows
    ]
    return _csv(flat)


def runs_csv(plan: Plan, outcome: TrialOutcome) -> str:
    """Return ``runs.csv``: a row a run."""
    keys = list(dict.fromkeys(key for case in plan.cases for key in case.settings))
    flat = []
    for trial in plan.trials():
        result = outcome.results.get(trial.digest)
        numbers = dict.fromkeys(COLUMNS) if result is None else _numbers(result, plan.target)
        flat.append(
            {
                "case": trial.case.name,
                **{key: trial.case.settings.get(key, "") for key in keys},
                "seed": trial.seed,
                "status": "failed" if result is None else "finished",
                **numbers,
                "weights_digest": "" if result is None else result.weights_digest,
                "folder": "" if result is None else result.folder,
            }
        )
    return _csv(flat)


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue()
