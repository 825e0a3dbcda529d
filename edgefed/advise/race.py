"""Successive halving: many candidates for few rounds, then the better ones for more.

Jamieson & Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization",
AISTATS 2016, algorithm 1, with a factor of η = 3: level k of K trains for R / η^(K - k) rounds, and
the best third goes on, with the simplest candidate as the reference. Every level starts its runs
anew, so each is a plain run of the simulator, and the same race resumes after a kill: finished runs
are on disk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from edgefed.errors import UsageError
from edgefed.simulator.sweep.plan import Plan, SweepCase
from edgefed.simulator.sweep.results import TrialResult
from edgefed.simulator.sweep.trials import TrialOutcome
from edgefed.terminal.units import counted

FACTOR = 3
"""η: how many times fewer candidates, and more rounds, each level has."""

LEAST_ROUNDS = 3
FINALISTS = 3
"""Candidates that the last level has at least, if there are so many."""

LAST_TESTS = 3
"""Tests whose mean is a run's score: a single one swings with skewed labels."""

Run = Callable[[Plan], TrialOutcome]


@dataclass(frozen=True)
class Level:
    """One level of a race.

    Attributes:
        candidates: how many train.
        rounds: for how many rounds.
    """

    candidates: int
    rounds: int


@dataclass(frozen=True)
class RaceScore:
    """The results of a candidate in the last level that it was in.

    Attributes:
        accuracies: mean accuracy of the last tests, by seed; none where all its runs failed.
        results: of its runs, by seed.
        reason: of a failure; empty if a run finished.
    """

    case: SweepCase
    level: int
    rounds: int
    accuracies: Mapping[int, float]
    results: Mapping[int, TrialResult]
    reason: str = ""

    @property
    def mean(self) -> float:
        """The mean over seeds; minus infinity of none."""
        return fmean(self.accuracies.values()) if self.accuracies else -math.inf


def levels(candidates: int, rounds: int) -> tuple[Level, ...]:
    """Return the levels of a race, whose last one has all rounds."""
    most = max(0, math.floor(math.log(max(1, rounds / LEAST_ROUNDS), FACTOR)))
    steps = min(most, math.ceil(math.log(max(1, candidates / FINALISTS), FACTOR) - 1e-9))
    made, left = [], candidates
    for step in range(steps + 1):
        made.append(Level(left, max(1, math.ceil(rounds / FACTOR ** (steps - step)))))
        left = max(min(FINALISTS, left), math.ceil(left / FACTOR))
    return tuple(made)


def cost(planned: Sequence[Level], seeds: int) -> int:
    """Return how many rounds of the simulator a race takes."""
    return seeds * sum(level.candidates * level.rounds for level in planned)


def affordable_rounds(
    candidates: int, seeds: int, wanted: int, seconds_per_round: float, budget: float
) -> int:
    """Return the most rounds of the last level, up to the wanted ones, that a budget allows.

    Args:
        candidates: that enter.
        seeds: of each candidate.
        wanted: rounds of the recipe.
        seconds_per_round: measured, of one simulated round.
        budget: seconds.

    Raises:
        UsageError: ``advise.budget``: not even the shortest race fits.
    """
    for rounds in range(wanted, 0, -1):
        if cost(levels(candidates, rounds), seeds) * seconds_per_round <= budget:
            if rounds >= min(wanted, LEAST_ROUNDS):
                return rounds
            break
    shortest = min(wanted, LEAST_ROUNDS)
    needed = cost(levels(candidates, shortest), seeds) * seconds_per_round
    minutes = math.ceil(needed / 60)
    raise UsageError(
        f"A race of {candidates} candidates with {counted(seeds, 'seed')} needs about"
        f" {counted(minutes, 'minute')} for {counted(shortest, 'round')} each.",
        code="advise.budget",
        hint=f"give --minutes {minutes}, fewer --methods, or fewer --seeds",
    )


def race(
    cases: Sequence[SweepCase], seeds: Sequence[int], rounds: int, run: Run
) -> tuple[RaceScore, ...]:
    """Run a race and return the score of every candidate, the best first.

    Args:
        cases: the candidates, from the simplest on; the first one is in every level.
        seeds: of each.
        rounds: of the last level.
        run: runs the trials of a level.
    """
    scores: dict[str, RaceScore] = {}
    left = tuple(cases)
    planned = levels(len(left), rounds)
    for number, level in enumerate(planned):
        plan = Plan(tuple(_with_rounds(case, level.rounds) for case in left), tuple(seeds))
        made = _scores(plan, run(plan), number, level.rounds)
        scores |= made
        if number + 1 < len(planned):
            best = sorted(left[1:], key=lambda case: -made[case.name].mean)
            going = [left[0], *best[: planned[number + 1].candidates - 1]]
            left = tuple(case for case in left if case in going)
    return tuple(sorted(scores.values(), key=lambda score: (-score.level, -score.mean)))


def _with_rounds(case: SweepCase, rounds: int) -> SweepCase:
    section = case.recipe.rounds.model_copy(update={"count": rounds})
    return SweepCase(case.name, case.settings, case.recipe.model_copy(update={"rounds": section}))


def _scores(plan: Plan, outcome: TrialOutcome, level: int, rounds: int) -> dict[str, RaceScore]:
    results: dict[str, dict[int, TrialResult]] = {case.name: {} for case in plan.cases}
    reasons: dict[str, str] = {}
    for trial in plan.trials():
        if result := outcome.results.get(trial.digest):
            results[trial.case.name][trial.seed] = result
        else:
            reasons[trial.case.name] = outcome.failures.get(trial.digest, "")
    return {
        case.name: RaceScore(
            case,
            level,
            rounds,
            {
                seed: accuracy
                for seed, result in results[case.name].items()
                if (accuracy := score_of(result)) is not None
            },
            results[case.name],
            "" if results[case.name] else reasons.get(case.name, ""),
        )
        for case in plan.cases
    }


def score_of(result: TrialResult) -> float | None:
    """Return the mean accuracy of a run's last tests; None if it has none."""
    tested = [row["accuracy"] for row in result.history if row.get("accuracy") is not None]
    return fmean(tested[-LAST_TESTS:]) if tested else None
