"""A sweep's results as one table: one row per case, statistics over seeds of each metric."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.simulator.sweep.choice import Choice, choose
from edgefed.simulator.sweep.file import case_name, short_keys
from edgefed.simulator.sweep.plan import Plan
from edgefed.simulator.sweep.report import (
    RUN_NUMBERS,
    Report,
    ReportMetric,
    accuracy_metric,
    default_report,
)
from edgefed.simulator.sweep.results import TrialResult, error_file
from edgefed.simulator.sweep.run_values import (
    Place,
    has,
    has_number,
    is_elsewhere,
    measured_on,
    names_of,
    rounds_to,
    seconds_to,
    value_of,
)
from edgefed.simulator.sweep.statistics import (
    Better,
    Spread,
    Verdict,
    paired,
    spread,
    verdict,
)
from edgefed.simulator.sweep.trials import TrialOutcome


@dataclass(frozen=True)
class SweepColumn:
    """A number of the table.

    Attributes:
        key: its name in files.
        label: its name for people, with the place of the test where the name does not say it.
        better: its better values, if either is.
        of: returns a run's value.
        place: of the test; empty where the name, or every run, says it.
        target: whether it says when a target was reached; such columns have no differences.
        hidden: whether it is only in files.
    """

    key: str
    label: str
    better: Better | None
    of: Callable[[TrialResult], float | None]
    place: Place = ""
    target: bool = False
    hidden: bool = False


@dataclass(frozen=True)
class CaseComparison:
    """The difference of a case to the baseline, paired by seed.

    Attributes:
        difference: over the seeds with which both finished.
        verdict: whether it is beyond the 95 % interval.
    """

    difference: Spread
    verdict: Verdict


@dataclass(frozen=True)
class CaseRow:
    """One case of the table.

    Attributes:
        runs, failed: finished and failed runs.
        values: a spread for each column, by key.
        differences: to its baseline, by key; none of a baseline's own row.
        baseline: the case with which it is compared; empty for none.
        measured_on: where its scores without ``device_`` were measured.
        chosen: whether it is the best of its group by validation; None where none is chosen.
    """

    case: str
    settings: Mapping[str, Any]
    runs: int
    failed: int
    values: Mapping[str, Spread]
    differences: Mapping[str, CaseComparison]
    baseline: str
    measured_on: Place
    chosen: bool | None

    def to_json(self) -> dict[str, Any]:
        """Return the row as ``--json`` and ``table.json`` have it."""
        differences = {
            key: {**asdict(one.difference), "verdict": one.verdict}
            for key, one in self.differences.items()
        }
        return {
            "case": self.case,
            "settings": dict(self.settings),
            "runs": self.runs,
            "failed": self.failed,
            **{name: asdict(value) for name, value in self.values.items()},
            "measured_on": self.measured_on,
            "differences": differences,
            "baseline": self.baseline,
            **({} if self.chosen is None else {"chosen": self.chosen}),
        }


@dataclass(frozen=True)
class Table:
    """The table of a sweep that has ended, or of its runs so far.

    Attributes:
        baseline: name of the case with which the others are compared, or settings of such cases.
        choices: one for each group, if the sweep chooses.
        missing: metrics of the report that no finished run has, each with a sentence.
        failures: case, seed and reason of each failed run, and the file with its traceback.
    """

    columns: tuple[SweepColumn, ...]
    rows: tuple[CaseRow, ...]
    seeds: tuple[int, ...]
    baseline: str
    choices: tuple[Choice, ...]
    missing: Mapping[str, str]
    failures: tuple[tuple[str, int, str, str], ...]

    @property
    def shown(self) -> list[SweepColumn]:
        """The columns for people."""
        return [column for column in self.columns if not column.hidden]

    @property
    def keys(self) -> dict[str, str]:
        """The keys that the cases vary, with short names; none where cases have other names."""
        keys = list(self.rows[0].settings)
        for row in self.rows:
            if list(row.settings) != keys or row.case != case_name(row.settings):
                return {}
        return short_keys(keys, ("runs", "chosen", *(column.label for column in self.shown)))

    @property
    def chooses(self) -> bool:
        """Whether cases are chosen."""
        return any(row.chosen is not None for row in self.rows)

    def best(self) -> set[tuple[str, str]]:
        """Return case and key of the best mean of each column; of the chosen ones, if any are.

        Cases with different baselines do not compete. Of when a target was reached there is none:
        the seeds that never reach it have no value.
        """
        groups: dict[str, list[CaseRow]] = {}
        for row in [row for row in self.rows if row.chosen] or self.rows:
            groups.setdefault(row.baseline or row.case, []).append(row)
        return {place for rows in groups.values() for place in self._best(rows)}

    def _best(self, rows: Sequence[CaseRow]) -> set[tuple[str, str]]:
        best = set()
        for column in self.columns:
            means = {row.case: row.values[column.key].mean for row in rows}
            known = {case: mean for case, mean in means.items() if mean is not None}
            if not column.target and column.better and len(known) > 1:
                top = (max if column.better == "higher" else min)(known.values())
                best |= {(case, column.key) for case, mean in known.items() if mean == top}
        return best


def make_table(plan: Plan, outcome: TrialOutcome) -> Table:
    """Return the table of a sweep's finished runs."""
    by_case: dict[str, dict[int, TrialResult]] = {case.name: {} for case in plan.cases}
    failures = []
    for trial in plan.trials():
        if trial.digest in outcome.results:
            by_case[trial.case.name][trial.seed] = outcome.results[trial.digest]
        elif trial.digest in outcome.failures:
            reason, file = outcome.failures[trial.digest], error_file(trial.digest)
            failures.append((trial.case.name, trial.seed, reason, file))
    results = [result for own in by_case.values() for result in own.values()]
    columns = tuple(_columns(plan.report, results))
    values = {
        case: {column.key: _by_seed(own, column.of) for column in columns}
        for case, own in by_case.items()
    }
    references = plan.references()
    choices = _choices(plan, by_case)
    chosen = {choice.case for choice in choices}
    rows = (
        CaseRow(
            case.name,
            case.settings,
            len(by_case[case.name]),
            sum(failed[0] == case.name for failed in failures),
            {key: spread(list(by_seed.values())) for key, by_seed in values[case.name].items()},
            _differences(columns, values[case.name], values[references[case.name]])
            if case.name in references
            else {},
            references.get(case.name, ""),
            _place(by_case[case.name].values()),
            None if plan.choose is None else case.name in chosen,
        )
        for case in plan.cases
    )
    missing = dict(_missing(plan.report, results))
    return Table(
        columns, tuple(rows), plan.seeds, _named(plan), tuple(choices), missing, tuple(failures)
    )


def _named(plan: Plan) -> str:
    """Return the name of the baseline, or its settings."""
    if isinstance(plan.baseline, str):
        return plan.baseline or plan.cases[0].name
    return case_name(plan.baseline)


def _by_seed(
    results: Mapping[int, TrialResult], of: Callable[[TrialResult], float | None]
) -> dict[int, float]:
    """Return the values of the runs that have one, by seed."""
    values = {seed: of(result) for seed, result in results.items()}
    return {seed: value for seed, value in values.items() if value is not None}


def _differences(
    columns: Iterable[SweepColumn],
    own: Mapping[str, Mapping[int, float]],
    reference: Mapping[str, Mapping[int, float]],
) -> dict[str, CaseComparison]:
    differences = {}
    for column in columns:
        if not column.target:
            difference = paired(own[column.key], reference[column.key])
            differences[column.key] = CaseComparison(difference, verdict(difference, column.better))
    return differences


def _choices(plan: Plan, by_case: Mapping[str, Mapping[int, TrialResult]]) -> list[Choice]:
    if plan.choose is None:
        return []
    of = partial(value_of, name=plan.choose.by)
    scores = {case: _by_seed(results, of) for case, results in by_case.items()}
    return choose(plan.choose, {case.name: case.recipe for case in plan.cases}, scores)


def _missing(report: Report, results: Sequence[TrialResult]) -> Iterator[tuple[str, str]]:
    """Yield the metrics that no finished run has, each with a sentence; none without runs."""
    for metric in report if results else ():
        if any(has_number(result, metric.name) for result in results):
            continue
        if any(has(result, metric.name) for result in results):
            yield metric.name, f"no finished run has a finite value of '{metric.name}'"
        else:
            known = names_of(results)
            near = did_you_mean(nearest_name(metric.name, known))
            names = "" if near else f"; the runs have: {', '.join(known)}"
            yield metric.name, f"no finished run has '{metric.name}'{near or names}"


def _place(results: Iterable[TrialResult]) -> Place:
    """Return where the runs of a case were tested."""
    return next(filter(None, map(measured_on, results)), "")


# -- columns --------------------------------------------------------------------------------------


def _columns(report: Report, results: Sequence[TrialResult]) -> Iterator[SweepColumn]:
    """Yield the columns of a report: its metrics, then when their targets were reached.

    A score that some runs measured on devices alone, and others at the coordinator, has two
    columns: one of the coordinator's, and one of all devices' with ``device_`` before the name.
    """
    split = list(_split(report, results))
    yield from (value_column(metric, place) for metric, place in split)
    usual = [metric.name for metric in report] == [metric.name for metric in default_report()]
    for metric, place in split:
        if metric.target is not None or (usual and metric.name == "accuracy"):
            yield from _target_columns(metric, place)


def curve_columns(report: Report, results: Sequence[TrialResult]) -> list[SweepColumn]:
    """Return the columns of metrics with values by round: the accuracy, and those of a report."""
    by_name = {metric.name: metric for metric in (accuracy_metric(), *report)}
    metrics = tuple(metric for name, metric in by_name.items() if name not in RUN_NUMBERS)
    columns = (value_column(metric, place) for metric, place in _split(metrics, results))
    return [column for column in columns if any(has_curve(column, result) for result in results)]


def has_curve(column: SweepColumn, result: TrialResult) -> bool:
    """Return whether a run has values of a column by round."""
    return has_number(result, column.key) and not is_elsewhere(column.place, result)


def value_column(metric: ReportMetric, place: Place = "") -> SweepColumn:
    """Return the column of a metric that was measured at a place."""
    value = partial(_value, metric, place)
    return SweepColumn(metric.name, _label(metric.name, place), metric.better, value, place)


def _split(report: Report, results: Sequence[TrialResult]) -> Iterator[tuple[ReportMetric, Place]]:
    """Yield the metrics with the place of their test, where the name does not say it."""
    places = [measured_on(result) for result in results]
    names = {metric.name for metric in report}
    for metric in report:
        on_devices = f"device_{metric.name}"
        of_devices = [has(result, on_devices) for result in results]
        own = {
            "devices" if tested and place == "devices" else "coordinator"
            for result, tested, place in zip(results, of_devices, places, strict=True)
            if has(result, metric.name)
        }
        if not any(of_devices) or metric.name in RUN_NUMBERS:
            yield metric, ""
        elif own == {"devices"}:
            yield metric, "devices"
        elif own == {"coordinator"}:
            yield metric, ""
        else:
            yield metric, "coordinator"
            if on_devices not in names:
                yield replace(metric, name=on_devices), ""


def _value(metric: ReportMetric, place: Place, result: TrialResult) -> float | None:
    """Return a run's value, if it was measured at the place of the column."""
    return None if is_elsewhere(place, result) else value_of(result, metric.name)


def _label(name: str, place: Place) -> str:
    return f"{name} ({place})" if place else name


def _target_columns(metric: ReportMetric, place: Place) -> Iterator[SweepColumn]:
    """Yield after how many rounds and seconds the target of a metric was reached."""
    before = "" if metric.name == "accuracy" else f"{metric.name}_"
    name = "" if metric.name == "accuracy" and not place else f"{_label(metric.name, place)} "
    shown = "" if metric.target is None else f"{name}{metric.target:g}"
    for unit, of in (("rounds", rounds_to), ("seconds", seconds_to)):
        yield SweepColumn(
            f"{before}{unit}_to_target",
            f"{unit} to {shown}",
            "lower",
            partial(_reached, metric, place, of),
            target=True,
            hidden=metric.target is None,
        )


def _reached(
    metric: ReportMetric,
    place: Place,
    of: Callable[[TrialResult, ReportMetric], float | None],
    result: TrialResult,
) -> float | None:
    return None if is_elsewhere(place, result) else of(result, metric)
