"""The study of one set-up: settings are chosen on data kept apart, and the chosen ones tested."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.matching_study.local_models import STARTS, local_scores
from benchmarks.matching_study.methods import (
    METHODS,
    VARIATIONS,
    VARIED,
    Case,
    Choice,
    Setup,
    choices,
    recipe_keys,
)
from benchmarks.matching_study.runs import Runner

TUNING_SEED = 101


@dataclass(frozen=True)
class Row:
    """One case.

    Attributes:
        chosen: words of its settings.
        tuning: accuracy on the samples kept apart, by setting.
        runs: with each seed: ``rounds``, each with accuracy, bytes and widths, and ``seconds``.
    """

    case: Case
    chosen: str
    tuning: Mapping[str, float]
    runs: Sequence[Mapping[str, Any]] = field(default_factory=tuple)

    @property
    def final(self) -> tuple[float, ...]:
        """The accuracy after the last round, by seed."""
        return tuple(run["rounds"][-1]["accuracy"] for run in self.runs)


@dataclass(frozen=True)
class Study:
    """The cases of one set-up.

    Attributes:
        data: folder of the data sets.
        seeds: of the tests.
    """

    setup: Setup
    data: Path
    runner: Runner
    seeds: Sequence[int]

    def row(self, case: Case) -> Row | None:
        """Return what is known of a case; None where runs are lacking that are not to be done."""
        tuning = self.tuning(case)
        if not tuning:
            return None
        best = _best(tuning)
        choice = self._choices(case)[best]
        runs = [self._run(case, choice, seed) for seed in self.seeds]
        if any(run is None or run["ended"] != "finished" for run in runs):
            return None
        return Row(case, best, tuning, tuple(run for run in runs if run is not None))

    def tuning(self, case: Case) -> dict[str, float]:
        """Return the accuracy on the samples kept apart, by setting; empty where some lack.

        The learning rate is chosen first, with the first value of every other setting, and these
        with the chosen rate.
        """
        method = METHODS[case.method]
        rates: Sequence[float] = self.setup.rates
        if method.rate_as:
            known = self.tuning(Case(method.rate_as, case.epochs, case.total))
            if not known:
                return {}
            rates = [choices(self.setup, METHODS[method.rate_as])[_best(known)].rate]
        first = {key: values[0] for key, values in method.grid.items()}
        found = self._tried(case, [Choice(rate, first) for rate in rates])
        for key, values in method.grid.items():
            if not found:
                return {}
            best = self._choices(case)[_best(found)]
            more = [Choice(best.rate, {**best.more, key: value}) for value in values]
            scores = self._tried(case, more)
            found = {**found, **scores} if scores else {}
        return found

    def _tried(self, case: Case, several: Sequence[Choice]) -> dict[str, float]:
        """Return the scores of settings by their words; none where one lacks."""
        scores = {choice.words: self._tuned(case, choice) for choice in several}
        known = {words: score for words, score in scores.items() if score is not None}
        return known if len(known) == len(scores) else {}

    def _choices(self, case: Case) -> dict[str, Choice]:
        return choices(self.setup, METHODS[case.method])

    def settings(self) -> dict[str, float]:
        """Return the accuracy of other settings of FedMA on the samples kept apart, by words."""
        if VARIED not in self.setup.lengths:
            return {}
        case = Case("FedMA", VARIED, self.setup.lengths[VARIED])
        tuning = self.tuning(case)
        if not tuning:
            return {}
        base = self._choices(case)[_best(tuning)]
        found = {}
        for words, more in VARIATIONS.items():
            score = self._tuned(case, Choice(base.rate, {**base.more, **more}), 1.0)
            if score is not None:
                found[words] = score
        return found

    def _tuned(self, case: Case, choice: Choice, share: float | None = None) -> float | None:
        """Return the accuracy of a setting on the samples kept apart; -1 for a run that failed."""
        file = self.setup.file(self.data, self.runner.folder / "data", "tune", TUNING_SEED)
        share = share or self.setup.tuning_share
        keys = recipe_keys(self.setup, case, choice, file, TUNING_SEED, share)
        run = self.runner.run(f"{self.setup.name}: {case.words}, tuned, {choice.words}", keys)
        if run is None:
            return None
        score = run["rounds"][-1]["accuracy"] if run["rounds"] else None
        if run["ended"] != "finished" or score is None or not math.isfinite(score):
            return -1.0
        return float(score)

    def _run(self, case: Case, choice: Choice, seed: int) -> dict[str, Any] | None:
        file = self.setup.file(self.data, self.runner.folder / "data", "test", seed)
        keys = recipe_keys(self.setup, case, choice, file, seed)
        return self.runner.run(f"{self.setup.name}: {case.words}, {choice.words}", keys)

    def locals(self) -> dict[str, dict[str, tuple[float, ...]]]:
        """Return the accuracy of local networks by seed, by their start and epochs."""
        found = {}
        for epochs in self.setup.one_shot:
            tuning = self.tuning(Case("FedAvg", epochs))
            if not tuning:
                continue
            best = _best(tuning)
            choice = self._choices(Case("FedAvg", epochs))[best]
            for start in STARTS:
                scores = [self._local(epochs, choice, start, seed) for seed in self.seeds]
                known = [each for each in scores if each is not None]
                if len(known) == len(scores):
                    names = known[0]
                    by_name = {name: tuple(each[name] for each in known) for name in names}
                    found[f"{start}, E = {epochs}"] = by_name
        return found

    def _local(self, epochs: int, choice: Choice, start: Any, seed: int) -> dict[str, Any] | None:
        file = self.setup.file(self.data, self.runner.folder / "data", "test", seed)
        keys = recipe_keys(self.setup, Case("FedAvg", epochs), choice, file, seed)
        return local_scores(self.runner, keys, start)


def _best(scores: Mapping[str, float]) -> str:
    """Return the words of the best setting, the first of several."""
    return max(scores, key=lambda words: scores[words])
