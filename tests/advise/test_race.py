"""Successive halving: levels, survivors, the budget, and the rule by which one is recommended."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.advise.advice import recommend
from edgefed.advise.candidates import CANDIDATES
from edgefed.advise.race import Level, RaceScore, affordable_rounds, cost, levels, race
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import UnknownNameError, UsageError
from edgefed.simulator.sweep.plan import Plan, SweepCase
from edgefed.simulator.sweep.results import TrialResult
from edgefed.simulator.sweep.trials import TrialOutcome

NAMES = [one.name for one in CANDIDATES]


def _case(name: str) -> SweepCase:
    return SweepCase(name, {"candidate": name}, Recipe())


def test_levels_have_a_third_of_the_candidates_and_three_times_the_rounds() -> None:
    assert levels(27, 81) == (Level(27, 9), Level(9, 27), Level(3, 81))
    assert levels(15, 27) == (Level(15, 3), Level(5, 9), Level(3, 27))
    assert levels(3, 100) == (Level(3, 100),)
    assert levels(20, 5) == (Level(20, 5),)
    assert cost(levels(27, 81), 2) == 2 * (27 * 9 + 9 * 27 + 3 * 81)


@given(st.integers(1, 60), st.integers(1, 300))
def test_levels_shrink_and_end_with_all_rounds(candidates: int, rounds: int) -> None:
    made = levels(candidates, rounds)
    assert made[0].candidates == candidates
    assert made[-1].rounds == rounds
    assert all(b.candidates <= a.candidates and b.rounds > a.rounds for a, b in pairwise(made))


@given(st.integers(1, 30), st.integers(1, 5), st.integers(1, 100), st.floats(0.001, 10))
def test_an_affordable_race_fits_and_a_longer_one_does_not(
    candidates: int, seeds: int, wanted: int, seconds: float
) -> None:
    budget = 600.0
    try:
        rounds = affordable_rounds(candidates, seeds, wanted, seconds, budget)
    except UsageError as error:
        assert error.code == "advise.budget"
        assert cost(levels(candidates, min(wanted, 3)), seeds) * seconds > budget
        return
    assert cost(levels(candidates, rounds), seeds) * seconds <= budget
    assert rounds == wanted or cost(levels(candidates, rounds + 1), seeds) * seconds > budget


class _Accuracies:
    """Runs trials to given accuracies, which later levels may change."""

    def __init__(self, accuracies: Mapping[str, float]) -> None:
        self.accuracies = accuracies
        self.plans: list[tuple[tuple[str, ...], int]] = []

    def __call__(self, plan: Plan) -> TrialOutcome:
        self.plans.append(
            (tuple(case.name for case in plan.cases), plan.cases[0].recipe.rounds.count)
        )
        results, failures = {}, {}
        for trial in plan.trials():
            accuracy = self.accuracies[trial.case.name]
            if accuracy < 0:
                failures[trial.digest] = "it diverged"
                continue
            rows = tuple({"round": n, "accuracy": accuracy + 0.03 * (n - 1)} for n in range(4))
            results[trial.digest] = TrialResult.model_construct(  # type: ignore[call-arg]
                digest=trial.digest, seed=trial.seed, history=rows, rounds=4
            )
        return TrialOutcome(results, failures)


def test_the_better_ones_go_on_with_the_simplest_as_reference() -> None:
    names = NAMES[:10]
    run = _Accuracies({name: 0.1 * place for place, name in enumerate(names)} | {names[9]: -1.0})
    # Each case needs a digest of its own: their recipes differ in a name that digests ignore.
    cases = [
        SweepCase(name, {}, Recipe.model_validate({"training": {"learning_rate": 0.01 * (n + 1)}}))
        for n, name in enumerate(names)
    ]
    scores = race(cases, (1, 2), 27, run)
    assert run.plans == [
        (tuple(names), 3),
        ((names[0], names[6], names[7], names[8]), 9),
        ((names[0], names[7], names[8]), 27),
    ]
    assert [score.case.name for score in scores[:4]] == [names[8], names[7], names[0], names[6]]
    # The mean of the last three of four tests: accuracy + 0.03 · (0 + 1 + 2) / 3.
    assert scores[0].accuracies == pytest.approx({1: 0.83, 2: 0.83})
    failed = scores[-1]
    assert (failed.case.name, failed.reason, failed.accuracies) == (names[9], "it diverged", {})


def _score(name: str, *accuracies: float, level: int = 0) -> RaceScore:
    return RaceScore(_case(name), level, 3, dict(enumerate(accuracies)), {})


def test_the_simplest_within_one_standard_error_is_recommended() -> None:
    best = _score(NAMES[5], 0.80, 0.84, 0.82)
    # Differences 0.00, 0.03, 0.03: mean 0.02, standard error 0.01. Then 0.01, 0.00, 0.02 less.
    beyond = _score(NAMES[1], 0.80, 0.81, 0.79)
    assert recommend([best, beyond])[0] is best
    # Differences 0.03, -0.01, 0.01: mean 0.01, deviation 0.02, standard error 0.0115.
    within = _score(NAMES[2], 0.77, 0.85, 0.81)
    chosen, reason = recommend([best, beyond, within])
    assert chosen is within
    assert reason.startswith(f"the simplest that is within the noise of {NAMES[5]}")
    assert "1.0 points (standard error 1.2) behind it" in reason


def test_only_candidates_of_the_last_level_are_recommended() -> None:
    early, late = _score(NAMES[0], 0.99, 0.99), _score(NAMES[3], 0.5, 0.5, level=1)
    chosen, reason = recommend([early, late])
    assert (chosen, reason) == (late, "the only candidate that could be compared.")


def test_a_race_without_a_finished_run_is_an_error_with_the_cause() -> None:
    with pytest.raises(UnknownNameError, match="A run on the twin failed: it diverged"):
        recommend([RaceScore(_case(NAMES[0]), 0, 3, {}, {}, "it diverged")])
