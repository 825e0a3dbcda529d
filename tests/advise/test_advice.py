"""Predicted and reached values by hand, and which races are planned anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edgefed.advise.advice import predicted
from edgefed.advise.advising import Wishes, advise
from edgefed.advise.checks import compare, keep_check, record_of
from edgefed.advise.race import RaceScore
from edgefed.advise.twin import Twin
from edgefed.api.recipe_source import checked, recipe_of
from edgefed.config.recipes.recipe import Recipe
from edgefed.simulator.sweep.plan import Plan, SweepCase
from edgefed.simulator.sweep.results import TrialResult
from edgefed.simulator.sweep.trials import TrialOutcome
from tests.advise.fleets import one_label_each


def _result(accuracy: float, rounds: int, digest: str = "") -> TrialResult:
    return TrialResult.model_construct(
        digest=digest,
        case="",
        seed=1,
        settings={},
        recipe={},
        run="r",
        folder="",
        accuracy=accuracy,
        loss=None,
        rounds=rounds,
        bytes_up=300,
        bytes_down=100,
        seconds=6.0,
        weights_digest="",
        history=({"round": rounds, "accuracy": accuracy},),
    )


def test_values_are_for_all_rounds_and_one_device() -> None:
    recipe = Recipe.model_validate({"rounds": {"count": 20}})
    score = RaceScore(SweepCase("fedavg", {}, recipe), 0, 4, {1: 0.5}, {1: _result(0.5, 4)})
    row = predicted(score, recipe, 8, Twin({}, (), timed=True, round_overhead=0.25))
    # (300 + 100) bytes in 4 rounds of 8 devices are 12.5 a round and device; 6 s are 1.5 a round,
    # and a round takes 0.25 s more.
    assert (row.bytes, row.seconds, row.epsilon) == (250.0, 35.0, None)
    assert predicted(score, recipe, 8, Twin({}, (), timed=False)).seconds is None


def test_a_run_is_compared_with_its_prediction(tmp_path: Path) -> None:
    row = {"candidate": "fedavg", "accuracy": {"mean": 0.8}, "bytes": 100.0, "seconds": 50.0}
    advice = {"rows": [row], "recommended": "fedavg", "rounds": 10}
    # Five of ten rounds: 240 bytes of 4 devices are 120 of one in ten rounds. After the first, in
    # which agents start their training, a round takes 6 s. The last three tests make 0.7.
    accuracies = (0.1, None, 0.9, 0.6, 0.6)
    history = [{"seconds": 6.0, "accuracy": accuracy} for accuracy in accuracies]
    history[0]["seconds"] = 99.0
    record = {"round": 5, "bytes_up": 200, "bytes_down": 40, "history": history}
    compared = compare(advice, record, 4)
    assert [value.error for value in compared] == pytest.approx([-0.1, 0.2, 0.2])
    keep_check(tmp_path / "a", "r-1", compared)
    keep_check(tmp_path / "a", "r-1", compared)
    better = compare(advice, {**record, "history": [{"seconds": 1.0, "accuracy": 0.78}]}, 4)
    keep_check(tmp_path / "b", "r-2", better)
    assert record_of(tmp_path) == (
        "2 earlier runs by advice: the reached accuracy differed from the predicted by 6.0 points"
        " on average and by 10.0 at most."
    )


class _Clock:
    """Moves on by half a second at each look."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 0.5
        return self.seconds


def test_a_race_keeps_its_rounds_until_it_is_another_one(tmp_path: Path) -> None:
    looks: list[int] = []

    def run(plan: Plan) -> TrialOutcome:
        looks.append(plan.cases[0].recipe.rounds.count)
        return TrialOutcome({trial.digest: _result(0.5, 1) for trial in plan.trials()}, {})

    def rounds(seconds: float) -> list[int]:
        looks.clear()
        recipe = Recipe.model_validate({"rounds": {"count": 40}, "model": {"name": "mlp"}})
        wishes = Wishes(seconds, (1, 2), ("fedavg", "fedprox"))
        advise(recipe, one_label_each(), tmp_path, wishes, checked, run, _Clock())  # type: ignore[arg-type]
        return list(looks)

    # A probe of 2 rounds took 0.5 s; 3 candidates with 2 seeds: 6 · 0.25 s · 10 rounds = 15 s.
    assert rounds(15.0) == [2, 10]
    assert rounds(15.0) == [10]
    assert rounds(30.0) == [2, 20]
    note = json.loads((tmp_path / "advice.json").read_text())["notes"][-1]
    assert note.startswith("Candidates were compared after 20 of 40 rounds")


def test_a_file_of_histograms_is_found_beside_its_recipe(tmp_path: Path) -> None:
    file = tmp_path / "recipe.toml"
    file.write_text('[data]\npartition = "histograms"\nhistograms = "h.csv"\n')
    assert recipe_of(file, {}).data.settings()["histograms"] == str(tmp_path / "h.csv")
