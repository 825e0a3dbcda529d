"""The answer of an advice: a table of the candidates, one recommendation, and its recipe.

Of the candidates that reached the last level, the simplest is recommended whose accuracy is within
one standard error of the best one's, paired by seed (the one-standard-error rule: Breiman et al.,
"Classification and Regression Trees", 1984, section 3.4.3).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from edgefed.advise.candidates import CANDIDATES, candidate
from edgefed.advise.race import RaceScore
from edgefed.advise.twin import Twin
from edgefed.algorithms.private.privacy_plan import privacy_plan
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import UnknownNameError
from edgefed.simulator.sweep.statistics import Spread, paired, spread
from edgefed.terminal.units import counted


@dataclass(frozen=True)
class AdviceRow:
    """One candidate of the table.

    Attributes:
        level: the last level that it was in, from 0.
        rounds: of its runs there.
        accuracy: a share, over seeds.
        bytes: up and down of one device for all rounds of the recipe, from the bytes of a round.
        seconds: of all rounds of the recipe, in the fleet's time; None if unknown.
        joules: energy that a device takes to train in all rounds; None if unknown.
        leaves: the data that leave a device.
        epsilon: of the whole run; None without differential privacy.
        reason: why its runs failed.
    """

    candidate: str
    level: int
    rounds: int
    accuracy: Spread
    bytes: float | None
    seconds: float | None
    leaves: str
    epsilon: float | None
    reason: str = ""
    joules: float | None = None


@dataclass(frozen=True)
class Advice:
    """The answer.

    Attributes:
        rows: the candidates, the best first.
        refused: candidates that did not enter, with reasons.
        recommended: name of the candidate.
        reason: for it, with its uncertainty.
        rounds: of the recipe.
        seeds: of each candidate.
        notes: assumptions of the twin.
        record: how good earlier advice was; empty without any.
    """

    rows: tuple[AdviceRow, ...]
    refused: Mapping[str, str]
    recommended: str
    reason: str
    rounds: int
    seeds: tuple[int, ...]
    notes: tuple[str, ...] = ()
    record: str = ""

    @property
    def best(self) -> AdviceRow:
        """The recommended candidate's row."""
        return next(row for row in self.rows if row.candidate == self.recommended)

    def to_json(self) -> dict[str, Any]:
        """Return the object of ``--json`` and ``advice.json``."""
        return asdict(self)


def answer(
    scores: Sequence[RaceScore],
    refused: Mapping[str, str],
    recipe: Recipe,
    seeds: Sequence[int],
    devices: int,
    twin: Twin,
    *,
    notes: Sequence[str] = (),
    record: str = "",
) -> Advice:
    """Return the advice that follows from a race.

    Args:
        scores: of the race.
        refused: candidates that did not enter, with reasons.
        recipe: that is advised on.
        seeds: of the race.
        devices: of the fleet.
        twin: in which it took place.
        notes: assumptions of the twin.
        record: how good earlier advice was.

    Raises:
        UnknownNameError: ``advise.failed``: no candidate finished a run.
    """
    chosen, reason = recommend(scores)
    rows = tuple(
        predicted(score, recipe, devices, twin, candidate(score.case.name).leaves)
        for score in scores
    )
    return Advice(
        rows,
        dict(refused),
        chosen.case.name,
        reason,
        recipe.rounds.count,
        tuple(seeds),
        tuple(notes),
        record,
    )


def recommend(scores: Sequence[RaceScore]) -> tuple[RaceScore, str]:
    """Return the recommended candidate of a race, and the reason.

    Raises:
        UnknownNameError: ``advise.failed``: no candidate finished a run.
    """
    last = max((score.level for score in scores if score.accuracies), default=-1)
    final = [score for score in scores if score.level == last and score.accuracies]
    if not final:
        raise failed(next((score.reason for score in scores if score.reason), "it was not tested."))
    best = max(final, key=lambda score: score.mean)
    for score in sorted(final, key=lambda score: CANDIDATES.index(candidate(score.case.name))):
        behind = paired(best.accuracies, score.accuracies)
        if score is best or (behind.mean is not None and behind.mean <= _standard_error(behind)):
            return score, _reason(score, best, behind, final)
    return best, ""


def failed(reason: str) -> UnknownNameError:
    """Return the error for a twin on which no run can finish."""
    return UnknownNameError(
        f"A run on the twin failed: {reason}",
        code="advise.failed",
        hint="choose data that the twin can be dealt and tested with: --stand-in NAME[:PATH]",
    )


def _standard_error(differences: Spread) -> float:
    if differences.deviation is None:
        return 0.0
    return differences.deviation / math.sqrt(differences.count)


def _reason(chosen: RaceScore, best: RaceScore, behind: Spread, final: Sequence[RaceScore]) -> str:
    seeds = len(best.accuracies)
    if chosen is not best:
        return (
            f"the simplest that is within the noise of {best.case.name}, the most accurate:"
            f" {_points(behind)} behind it, over {counted(seeds, 'seed')}."
        )
    others = [score for score in final if score is not best]
    if not others:
        return "the only candidate that could be compared."
    second = max(others, key=lambda score: score.mean)
    ahead = _points(paired(best.accuracies, second.accuracies))
    return f"the most accurate: {ahead} ahead of {second.case.name}, over {counted(seeds, 'seed')}."


def _points(difference: Spread) -> str:
    mean = 100 * (difference.mean or 0.0)
    if difference.deviation is None:
        return f"{mean:.1f} points (one seed: how sure is unknown)"
    return f"{mean:.1f} points (standard error {100 * _standard_error(difference):.1f})"


def predicted(
    score: RaceScore, recipe: Recipe, devices: int, twin: Twin, leaves: str = ""
) -> AdviceRow:
    """Return the values of a candidate's run on the fleet.

    Args:
        score: of its runs on the twin.
        recipe: whose rounds the values are for.
        devices: of the fleet.
        twin: of these runs.
        leaves: the data that leave a device.
    """
    rounds = recipe.rounds.count
    results = list(score.results.values())
    moved = [(r.bytes_up + r.bytes_down) / max(1, r.rounds) / devices * rounds for r in results]
    seconds = [(r.seconds / max(1, r.rounds) + twin.round_overhead) * rounds for r in results]
    privacy = recipe.privacy
    return AdviceRow(
        candidate=score.case.name,
        level=score.level,
        rounds=score.rounds,
        accuracy=spread(list(score.accuracies.values())),
        bytes=fmean(moved) if moved else None,
        seconds=fmean(seconds) if seconds and twin.timed else None,
        leaves=leaves,
        epsilon=privacy_plan(privacy, recipe.rounds).epsilon if privacy.wanted else None,
        reason=score.reason,
        joules=twin.joules,
    )
