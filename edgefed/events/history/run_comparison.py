"""Runs side by side: result and cost of each, and the settings in which they differ."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgefed.events.base.best_rounds import Best, Measure, best_of
from edgefed.events.base.snapshot import TEST_COUNTS
from edgefed.events.history.known_runs import RunDetails
from edgefed.terminal.units import duration, size, tested_by

ALGORITHM = "algorithm.name"
"""The key of the setting that is listed first."""

NONE = "-"
"""Stands for a setting or a result that a run does not have."""

Row = tuple[str, ...]
"""The name of a compared value, then the value for each run."""


@dataclass(frozen=True)
class Setting:
    """A key of the recipes that is not the same for all runs.

    Attributes:
        key: dotted, such as ``training.epochs``.
        values: one for each run; None also where a run's recipe lacks the key.
    """

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True)
class Comparison:
    """Runs side by side.

    Attributes:
        runs: in the order in which they were named.
        settings: those that differ, without the run's name: the algorithm, then its keys, then the
            others in the order of the recipes.
    """

    runs: tuple[RunDetails, ...]
    settings: tuple[Setting, ...]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as ``edgefed run compare --json`` prints it."""
        return {
            "runs": [_result(run) for run in self.runs],
            "settings": [
                {
                    "key": setting.key,
                    "values": {
                        run.run: value for run, value in zip(self.runs, setting.values, strict=True)
                    },
                }
                for setting in self.settings
            ],
        }

    def results(self) -> list[Row]:
        """Return results and costs of the runs, without rows in which no run has a value."""
        runs = self.runs
        rows = [(name, *(cell(run) or NONE for run in runs)) for name, cell in _RESULTS.items()]
        if any(best(run, "accuracy") for run in runs):
            rows = [row for row in rows if row[0] != "best loss"]
        return [row for row in rows if any(cell != NONE for cell in row[1:])]

    def differences(self) -> list[Row]:
        """Return the settings that differ, with their values as text."""
        return [(setting.key, *map(in_words, setting.values)) for setting in self.settings]


def compare(runs: Sequence[RunDetails]) -> Comparison:
    """Return runs side by side."""
    flat = [dict(_flattened(run.recipe)) for run in runs]
    keys = dict.fromkeys(key for recipe in flat for key in recipe)
    settings = (Setting(key, tuple(recipe.get(key) for recipe in flat)) for key in keys)
    differing = [
        setting
        for setting in settings
        if setting.key != "name" and any(v != setting.values[0] for v in setting.values)
    ]
    differing.sort(key=lambda one: (one.key != ALGORITHM, not one.key.startswith("algorithm.")))
    return Comparison(tuple(runs), tuple(differing))


def best(run: RunDetails, measure: Measure) -> Best | None:
    """Return the best value of a run's rounds, None without any."""
    return best_of(run.history, measure)


def in_words(value: Any) -> str:
    """Return a setting as a recipe writes it, without quotes."""
    if value is None:
        return NONE
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _flattened(recipe: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in recipe.items():
        if isinstance(value, Mapping):
            yield from _flattened(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _result(run: RunDetails) -> dict[str, Any]:
    fields = run.model_dump(mode="json", exclude={"recipe", "history"})
    for measure in ("accuracy", "loss"):
        optimum = best(run, measure)
        fields[f"best_{measure}"] = optimum and optimum.value
        fields[f"best_{measure}_round"] = optimum and optimum.round
    return fields


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def _testers(run: RunDetails) -> str:
    """Return which devices and labels the last score is of; nothing where it is of all."""
    scored = (row for row in reversed(run.history) if row.accuracy is not None)
    last = next(scored, None)
    return tested_by(last.model_dump(include=set(TEST_COUNTS))) if last else ""


def _epsilon(run: RunDetails) -> str:
    least = "at least " if run.restored and run.epsilon is not None else ""
    return f"{least}{_number(run.epsilon)}"


def _best(measure: Measure) -> Callable[[RunDetails], str]:
    def cell(run: RunDetails) -> str:
        optimum = best(run, measure)
        return f"{_number(optimum.value)} in round {optimum.round}" if optimum else ""

    return cell


_RESULTS: dict[str, Callable[[RunDetails], str]] = {
    "name": lambda run: run.name,
    "algorithm": lambda run: run.algorithm,
    "status": lambda run: run.status,
    "rounds": lambda run: f"{run.round} of {run.rounds}",
    "accuracy": lambda run: _number(run.accuracy),
    "tested by": _testers,
    "best accuracy": _best("accuracy"),
    "loss": lambda run: _number(run.loss),
    "best loss": _best("loss"),
    "bytes up": lambda run: size(run.bytes_up),
    "bytes down": lambda run: size(run.bytes_down),
    "time": lambda run: duration(run.seconds),
    "epsilon": _epsilon,
}
"""The results in the order of the table."""
