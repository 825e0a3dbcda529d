"""The evaluations of a run so far: its best round, and whether to stop early.

The result follows from the rows of the rounds, in order, so it is the same after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgefed.config.recipes.recipe import EvaluationSection
from edgefed.errors import UsageError
from edgefed.terminal.units import counted

Row = Mapping[str, Any]
"""A finished round: its number and its scores by name, None where it has none."""

LOWER = frozenset({"loss", "error"})
"""Words of a score's name that make lower values better."""

USUAL = ("accuracy", "loss")
"""The scores that select the best round if the recipe names none: the first available one
counts."""

REMOVED_TESTERS = "removed_testers"
"""Name of the number, in a row, of devices that tested earlier rounds but no longer can."""

NO_SCORES = frozenset(
    {
        "round",
        "train_loss",
        "replies",
        "late",
        "slowest",
        "slowest_seconds",
        "seconds",
        "sent",
        "received",
        REMOVED_TESTERS,
    }
)
"""Fields of a row beside the scores of an evaluation."""


@dataclass(frozen=True)
class BestRound:
    """The round with the best score, the first of equal ones."""

    round: int
    metric: str
    score: float


class EvaluationHistory:
    """Finds the best round, and whether to stop, from the rows of a run's rounds.

    Args:
        section: names the score, and the conditions of stopping.
    """

    def __init__(self, section: EvaluationSection) -> None:
        self._section = section
        self._metric = section.best_metric
        self._improved: float | None = None
        self._since = 0
        self._lacking: tuple[str, ...] = ()
        self._given = False
        self._warned = False
        self.best: BestRound | None = None

    def add(self, row: Row) -> None:
        """Add the row of the next round; a round without an evaluation changes nothing.

        Scores of devices' tests are comparable while the same devices can test. When one of them
        has been removed from the fleet or quarantined, the search for the best round restarts.
        """
        if not self._metric:
            self._metric = next((name for name in USUAL if row.get(name) is not None), "")
        if row.get(REMOVED_TESTERS) and self._is_of_devices(row):
            self.best, self._improved, self._since = None, None, 0
        score = row.get(self._metric)
        if score is None:
            # A diverged model has an accuracy and no loss, or the other way round.
            tested = any(row.get(name) is not None for name in USUAL)
            self._since += tested and self.best is not None
            if tested and not self._given and self._metric not in row and not self._lacking:
                self._lacking = tuple(name for name in row if name not in NO_SCORES)
            return
        self._given = True
        if self.best is None or self._is_better(score, self.best.score, 0.0):
            self.best = BestRound(int(row["round"]), self._metric, float(score))
        if self._improved is None or self._is_better(
            score, self._improved, self._section.stop_min_change
        ):
            self._improved, self._since = float(score), 0
        else:
            self._since += 1

    def check(self, warn: Callable[[str], None]) -> None:
        """Check that evaluations give the score that the recipe names.

        For one that other devices may report later, such as ``accuracy_known``, there is only a
        warning.

        Raises:
            UsageError: ``evaluation.metric``: the first evaluation did not.
        """
        if not self._lacking or self._warned or self._given:
            return
        given = ", ".join(sorted(self._lacking))
        if any(self._metric.startswith(f"{name}_") for name in self._lacking):
            self._warned = True
            warn(
                f"the evaluation gives no {self._metric} yet (evaluation.best_metric), but {given}"
            )
            return
        raise UsageError(
            f"The evaluation gives no {self._metric!r}, which selects the best round.",
            code="evaluation.metric",
            hint=f"set evaluation.best_metric to one of: {given}",
        )

    def stop_reason(self) -> str:
        """Return why the run stops early, or nothing."""
        patience, best = self._section.stop_patience, self.best
        if not patience or best is None or self._since < patience:
            return ""
        return (
            f"stopped early: no better {best.metric} in {counted(patience, 'evaluation')};"
            f" the best is {best.score:.4f} after round {best.round}"
        )

    def _is_of_devices(self, row: Row) -> bool:
        """Whether the score is of the devices' tests; the coordinator's is another number."""
        own = row.get(f"device_{self._metric}")
        return self._metric.startswith("device_") or own is None or own == row.get(self._metric)

    def _is_better(self, score: float, other: float, least: float) -> bool:
        gain = other - score if lower_is_better(self._section, self._metric) else score - other
        return gain > least


def lower_is_better(section: EvaluationSection, metric: str) -> bool:
    """Return whether lower values of a score are better, by the recipe or by its name."""
    if section.better is not None:
        return section.better == "lower"
    return not LOWER.isdisjoint(metric.split("_"))


def history_of(section: EvaluationSection, rows: Iterable[Row]) -> EvaluationHistory:
    """Return the history of a run's finished rounds."""
    history = EvaluationHistory(section)
    for row in rows:
        history.add(row)
    return history
