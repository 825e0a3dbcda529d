"""The evaluations of a run so far: its best round, and whether to stop early.

Scores of devices' tests compare only where comparable devices tested. The judgement of a round is
part of its row, so it follows from the rows of the rounds, in order, and is the same after a
restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edgefed.config.recipes.recipe import EvaluationSection
from edgefed.errors import UsageError
from edgefed.events.base.method_tables import SYSTEM
from edgefed.events.base.snapshot import TEST_COUNTS
from edgefed.terminal.units import counted

Row = Mapping[str, Any]
"""A finished round: its number and its scores by name, None where it has none."""

DeviceTests = Mapping[str, Mapping[str, float]]
"""Scores of each device's test by name, with its number of samples as ``samples``."""

SAMPLES = "samples"
DEVICE_TESTS = "device_tests"
"""Name of the ``DeviceTests`` in a row; only rows from the coordinator's store have them."""

SETTLED = "settled"
"""Name of the questions of buffered rounds in the row of the round in which they were closed; only
rows from the coordinator's store have them."""

MEASURED = "measured"
"""Name of the measurements of each device that was asked in a round, in its row; only
rows from the coordinator's store have it."""

LOWER = frozenset({"loss", "error"})
"""Words of a score's name that make lower values better."""

USUAL = ("accuracy", "loss")
"""The scores that select the best round if the recipe names none: the first available one
counts."""

REMOVED_TESTERS = "removed_testers"
"""Name of the number, in a row, of devices that tested earlier rounds but no longer can."""

COMPARED, IS_BEST, IMPROVED = "compared", "is_best", "improved"
TESTED_SHARE = "tested_share"
"""Name of the share of the able devices' test samples that was tested."""

DEVICES, LABELS = TEST_COUNTS[:2], TEST_COUNTS[2:]

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
        "joules",
        "summed",
        REMOVED_TESTERS,
        COMPARED,
        IS_BEST,
        IMPROVED,
        TESTED_SHARE,
        *TEST_COUNTS,
        DEVICE_TESTS,
        SETTLED,
        MEASURED,
    }
)
"""Fields of a row beside the scores of an evaluation."""


@dataclass(frozen=True)
class BestRound:
    """The round with the best score, the first of equal ones."""

    round: int
    metric: str
    score: float


@dataclass(frozen=True)
class FleetTesters:
    """The devices that can test a round's model.

    Attributes:
        known: all that have ever tested in the run and still can; empty if none are ever removed.
        drawn: number of devices whose tests the round waits for if it draws so many; otherwise 0.
        removed: whether one that tested before no longer can.
    """

    known: Collection[str] = ()
    drawn: int = 0
    removed: bool = False


@dataclass(frozen=True)
class _Reference:
    """A round that later ones are compared with."""

    score: float
    tests: DeviceTests = field(default_factory=dict)


class EvaluationHistory:
    """Finds the best round, and whether to stop, from the rows of a run's rounds.

    Args:
        section: names the score, and the conditions of stopping.
    """

    def __init__(self, section: EvaluationSection) -> None:
        self._section = section
        self._metric = section.best_metric
        self._best: _Reference | None = None
        self._improved: _Reference | None = None
        self._samples: dict[str, float] = {}
        self._since = 0
        self._lacking: tuple[str, ...] = ()
        self._given = False
        self._warned = False
        self.best: BestRound | None = None

    def judged(self, scores: Row, tests: DeviceTests, testers: FleetTesters) -> dict[str, Any]:
        """Return the fields of a row about a test on devices: its coverage, and its judgement.

        Args:
            scores: of the round by name.
            tests: of each device.
            testers: the devices that can test.
        """
        if not tests:
            return {}
        samples = self._samples | {device: test[SAMPLES] for device, test in tests.items()}
        every = {*(testers.known or self._samples), *tests}
        drawn = testers.drawn if testers.drawn < len(every) else 0
        share = min(1.0, len(tests) / drawn) if drawn else _share(tests, every, samples)
        row: dict[str, Any] = {
            **dict(zip(DEVICES, (len(tests), drawn or len(every)), strict=True)),
            TESTED_SHARE: round(share, 4),
        }
        name = self._metric_of(scores)
        score = scores.get(name)
        if score is None or not math.isfinite(score) or not _is_of_devices(name, scores):
            return row
        if share < self._section.least_tested:
            return {**row, COMPARED: False, IS_BEST: False, IMPROVED: False}

        def gain(reference: _Reference | None) -> float:
            """Return the gain over a round, infinite over one with tests of too few devices."""
            if reference is None or testers.removed:
                return math.inf
            known = bool(reference.tests)  # not of a round from before devices' scores were stored
            covered = _share(reference.tests, every, samples) if known and not drawn else 1.0
            if covered < self._section.least_tested:
                return math.inf
            return self._gain(name, _Reference(score, tests), reference)

        least = self._section.stop_min_change
        better, improved = gain(self._best) > 0, gain(self._improved) > least
        return {**row, COMPARED: True, IS_BEST: better, IMPROVED: improved}

    def add(self, row: Row) -> None:
        """Add the row of the next round; a round without an evaluation changes nothing.

        A row with a judgement counts by it. A round that too few devices have tested is neither
        better nor worse than others.
        """
        self._metric = self._metric_of(row)
        tests: DeviceTests = row.get(DEVICE_TESTS) or {}
        self._samples |= {device: test[SAMPLES] for device, test in tests.items()}
        if row.get(REMOVED_TESTERS) and _is_of_devices(self._metric, row):
            self.best, self._best, self._improved, self._since = None, None, None, 0
        score = row.get(self._metric)
        if score is None:
            # A diverged model has an accuracy and no loss, or the other way round.
            tested = any(row.get(name) is not None for name in USUAL)
            self._since += tested and self.best is not None
            if tested and not self._given and self._metric not in row and not self._lacking:
                self._lacking = tuple(
                    name for name in row if name not in NO_SCORES and not name.startswith(SYSTEM)
                )
            return
        self._given = True
        now = _Reference(float(score), tests)
        if row.get(IS_BEST, self._exceeds(now, self._best, 0.0)):
            self.best, self._best = BestRound(int(row["round"]), self._metric, now.score), now
        if row.get(IMPROVED, self._exceeds(now, self._improved, self._section.stop_min_change)):
            self._improved, self._since = now, 0
        elif row.get(COMPARED, True):
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

    def _metric_of(self, row: Row) -> str:
        usual = (name for name in USUAL if row.get(name) is not None)
        return self._metric or next(usual, "")

    def _exceeds(self, now: _Reference, reference: _Reference | None, least: float) -> bool:
        """Return whether a score is better by more than ``least``, without regard to testers."""
        return reference is None or self._signed(now.score - reference.score) > least

    def _gain(self, name: str, now: _Reference, before: _Reference) -> float:
        """Return by how much a round is better: on the devices that tested both, if many did.

        Where these have less than half of either round's samples, the scores are compared.
        """
        name = name.removeprefix("device_")
        both = [
            device
            for device, test in now.tests.items()
            if name in test and name in before.tests.get(device, {})
        ]
        weights = {device: now.tests[device][SAMPLES] for device in both}
        common = math.fsum(weights.values())
        most = max(
            math.fsum(test[SAMPLES] for test in tests.values())
            for tests in (now.tests, before.tests)
        )
        if not common or 2 * common < most:
            return self._signed(now.score - before.score)
        if self._section.weighting == "devices":
            weights = dict.fromkeys(both, 1.0)
        gains = (
            weights[device] * (now.tests[device][name] - before.tests[device][name])
            for device in both
        )
        return self._signed(math.fsum(gains) / math.fsum(weights.values()))

    def _signed(self, gain: float) -> float:
        return -gain if lower_is_better(self._section, self._metric) else gain


def _share(tests: Collection[str], every: Collection[str], samples: Mapping[str, float]) -> float:
    """Return the share of all devices' test samples that are those of ``tests``."""
    total = math.fsum(samples.get(device, 0.0) for device in every)
    tested = math.fsum(samples.get(device, 0.0) for device in set(tests).intersection(every))
    return tested / total if total else 1.0


def _is_of_devices(metric: str, row: Row) -> bool:
    """Return whether a score is of the devices' tests; the coordinator's is another number."""
    own = row.get(f"device_{metric}")
    if metric.startswith("validation_"):
        return False
    return metric.startswith("device_") or own is None or own == row.get(metric)


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
