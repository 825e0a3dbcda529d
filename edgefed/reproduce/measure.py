"""The results of a table's runs: accuracy and rounds of each cell, beside the published values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from edgefed.reproduce.plan import LEFT_OUT, Cell, Study
from edgefed.reproduce.table import PaperColumn, PaperScore, Published
from edgefed.reproduce.verdict import Verdict, judge
from edgefed.simulator.sweep.plan import trial_digest
from edgefed.simulator.sweep.report import accuracy_metric
from edgefed.simulator.sweep.results import TrialResult
from edgefed.simulator.sweep.run_values import bytes_by_round, bytes_to, rounds_to
from edgefed.simulator.sweep.statistics import Spread, spread
from edgefed.simulator.sweep.trials import TrialOutcome


@dataclass(frozen=True)
class Entry:
    """One cell of the table that comes out.

    Attributes:
        accuracy: a share, over the seeds that ran.
        rounds, bytes_to: to the column's target, over the seeds that reached it.
        bytes: of the whole run, both ways.
        growth: parameters of the matched model divided by a device's, in the last round; no value
            where nothing is matched.
        failed: how many seeds failed.
        published: the paper's number, in percent; None if unknown.
        difference: measured less published, in points; None where the set-up is not the paper's.
    """

    cell: Cell
    accuracy: Spread
    rounds: Spread
    bytes_to: Spread
    bytes: Spread
    growth: Spread
    seconds: Spread
    failed: int
    published: Published | None
    difference: float | None

    def to_json(self) -> dict[str, Any]:
        """Return the entry as ``--json`` has it."""
        column, known = self.cell.column, self.published
        return {
            "row": self.cell.row.label,
            "column": column.label,
            "of": column.of,
            "settings": dict(self.cell.case.settings),
            "accuracy": asdict(self.accuracy),
            "target": column.target,
            "rounds_to_target": asdict(self.rounds),
            "bytes_to_target": asdict(self.bytes_to),
            "bytes": asdict(self.bytes),
            "growth": asdict(self.growth),
            "seconds": asdict(self.seconds),
            "failed": self.failed,
            "published": None if known is None else round(known.value / 100, 6),
            "source": None if known is None else known.source,
            "difference": None if self.difference is None else self.difference / 100,
        }


def scored(
    result: TrialResult, score: PaperScore, reference: TrialResult | None = None
) -> float | None:
    """Return a run's score: the mean of its last tests; None if it has too few of them.

    Args:
        result: of the run.
        score: how it is scored.
        reference: the run whose bytes limit ``equal_bytes_accuracy``.
    """
    rows: Sequence[Mapping[str, Any]] = result.history
    if score.metric == "equal_bytes_accuracy":
        return None if reference is None else _within(result, _bytes(reference))
    if score.metric == "best_accuracy":
        return max(
            (row["accuracy"] for row in rows if row.get("accuracy") is not None), default=None
        )
    if score.metric == "final_accuracy":  # of most runs that is the last round's
        rows = [{"final_accuracy": row.get("accuracy"), **row} for row in rows]
    scores = [row[score.metric] for row in rows if row.get(score.metric) is not None]
    if len(scores) < score.last:
        return None
    return math.fsum(scores[-score.last :]) / score.last


def entries(study: Study, outcome: TrialOutcome) -> list[Entry]:
    """Return the planned cells with their results."""
    return [_entry(cell, study, outcome) for cell in study.cells]


def verdicts(study: Study, outcome: TrialOutcome) -> list[Verdict]:
    """Return the verdicts on the paper's claims.

    Published deviations are the noise of one seed only where the set-up is the paper's. A claim
    about a row that was not asked for has none.
    """
    left_out = {label for label, why in study.scaled.left_out.items() if why == LEFT_OUT}
    claims = [
        claim
        for claim in study.table.claims
        if not left_out.intersection(term.row for term in claim.terms)
    ]
    values, columns = partial(_values, study, outcome), study.scaled.columns

    def numbers(row: str, column: str) -> Published | None:
        known = study.table.number(row, column)
        return known if known is None or study.scaled.exact else replace(known, deviation=None)

    judged = (judge(claim, columns, values, numbers) for claim in claims)
    return list(chain.from_iterable(judged))


def _values(
    study: Study, outcome: TrialOutcome, row: str, column: PaperColumn
) -> Mapping[int, float]:
    """Return a cell's score by seed."""
    for cell in study.cells:
        if cell.row.label == row and cell.column is column:
            results = _results(cell, study, outcome)
            first = next(first for first in study.cells if first.column is column)
            references = _results(first, study, outcome)
            scores = {
                seed: scored(result, column.score, references.get(seed))
                for seed, result in results.items()
            }
            return {seed: score for seed, score in scores.items() if score is not None}
    return {}


def _bytes(result: TrialResult) -> int:
    """Return the bytes of a run, both ways."""
    return result.bytes_up + result.bytes_down


def _within(result: TrialResult, limit: int) -> float | None:
    """Return the accuracy of the last test of a run that has moved at most so many bytes."""
    moved = bytes_by_round(result)
    tested = [row for row in result.history if row.get("accuracy") is not None]
    scores = [row["accuracy"] for row in tested if moved[row["round"]] <= limit]
    return scores[-1] if scores else None


def _results(cell: Cell, study: Study, outcome: TrialOutcome) -> dict[int, TrialResult]:
    digests = {seed: _digest(cell, seed) for seed in study.seeds}
    return {s: outcome.results[name] for s, name in digests.items() if name in outcome.results}


def _growth(result: TrialResult) -> float | None:
    growths = [row["growth"] for row in result.history if row.get("growth") is not None]
    return growths[-1] if growths else None


def _digest(cell: Cell, seed: int) -> str:
    return trial_digest(cell.case.recipe.model_copy(update={"seed": seed}))


def _entry(cell: Cell, study: Study, outcome: TrialOutcome) -> Entry:
    results = _results(cell, study, outcome)
    runs = list(results.values())
    accuracy = spread(list(_values(study, outcome, cell.row.label, cell.column).values()))
    target = accuracy_metric(cell.column.target)
    reached = [rounds_to(run, target) for run in runs]
    sent = [bytes_to(run, target) for run in runs]
    published = study.table.number(cell.row.label, cell.column.of)
    difference = None
    if published is not None and accuracy.mean is not None and study.scaled.exact:
        difference = 100 * accuracy.mean - published.value
    return Entry(
        cell,
        accuracy,
        spread([number for number in reached if number is not None]),
        spread([number for number in sent if number is not None]),
        spread([_bytes(run) for run in runs]),
        spread([growth for run in runs if (growth := _growth(run)) is not None]),
        spread([run.seconds for run in runs]),
        sum(_digest(cell, seed) in outcome.failures for seed in study.seeds),
        published,
        difference,
    )
