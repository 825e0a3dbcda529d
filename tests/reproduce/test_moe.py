"""The tables of the federated mixture of experts: numbers, recipes, and what their scores mean."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from edgefed.config.recipes.recipe import Recipe
from edgefed.data.sets.datasets import load
from edgefed.learn.modeling.model_building import build
from edgefed.process.clock import SystemClock
from edgefed.reproduce.measure import scored
from edgefed.reproduce.paper_tables import find
from edgefed.reproduce.table import PaperScore, Scale
from edgefed.simulator.run import Simulation
from edgefed.simulator.sweep.plan import Plan, SweepCase, trial_digest
from edgefed.simulator.sweep.results import TrialResult
from edgefed.simulator.sweep.trials import run_trials
from tests.reproduce.layout import ENDS, recipes, study_of

pytest.importorskip("sklearn", reason="the digits are not installed")

SHAPES = {"digits": (1, 8, 8), "mnist": (1, 28, 28), "cifar10": (3, 32, 32)}


def test_what_was_published() -> None:
    found = {(each.row, each.column): each.value for each in find("moe-table1").published}
    columns = ("CIFAR-10", "CIFAR-100", "FEMNIST")
    assert len(found) == 18
    assert [found["FedAvg", each] for each in columns] == [69.36, 49.58, 85.73]
    assert [found["biased FedAvg", each] for each in columns] == [83.9, 56.14, 85.82]
    assert [found["Liang et al.", each] for each in columns] == [83.16, 41.09, 86.75]
    assert [found["FedMoE K=10", each] for each in columns] == [80.0, 52.59, 87.21]
    clients = {(each.row, each.column): each.value for each in find("moe-vae").published}
    assert clients["FedAvg", "known clients"] == 97.0
    assert clients["FedMoE K=4, p(s)", "known clients"] == 97.7
    assert clients["FedAvg", "new client"] == 96.9
    assert clients["FedMoE K=4, p(s)", "new client"] == 96.63
    assert clients["FedMoE K=4, VAE", "new client"] == 95.9


def test_the_papers_set_ups(tmp_path: Path) -> None:
    found = recipes("moe-table1", "paper", tmp_path)
    rounds = {row: found[row, "CIFAR-100"].rounds.count for row, _ in found}
    assert sorted(rounds.values()) == [6000, 6000, 6000, 24_000, 30_000, 30_000]
    assert found["FedMoE K=4", "FEMNIST"].algorithm.settings()["gates"] == "averaged"
    assert "gates" not in found["FedMoE K=4", "CIFAR-10"].algorithm.settings()
    for (row, _), recipe in found.items():
        assert recipe.algorithm.settings()["server_learning_rate"] == 0.001, row
        assert (recipe.rounds.cohort, recipe.rounds.test_cohort) == (10, 0)
        assert (recipe.evaluation.on, recipe.evaluation.weighting) == ("devices", "devices")


@pytest.mark.parametrize("name", ["moe-table1", "moe-rotation", "moe-newshard", "moe-vae"])
@pytest.mark.parametrize("scale", ENDS)
def test_the_table_of_shares_can_go_as_far_as_the_paper_s(
    name: str, scale: Scale, tmp_path: Path
) -> None:
    for (row, column), recipe in recipes(name, scale, tmp_path).items():
        settings = recipe.algorithm.settings()
        if recipe.algorithm.name != "fedmoe":
            assert "table_learning_rate" not in settings, (row, column)
        elif scale == "paper":
            assert settings["table_learning_rate"] == 0, row
        else:
            rate = settings["table_learning_rate"]
            assert rate * recipe.rounds.count == pytest.approx(2000 * 0.001, rel=0.15), row


@pytest.mark.parametrize("scale", ENDS)
def test_wider_models_take_the_bytes_of_the_experts(scale: Scale, tmp_path: Path) -> None:
    sizes = {}
    for (row, _), recipe in recipes("moe-figure4", scale, tmp_path).items():
        name = {"smoke": "digits", "small": "mnist", "paper": "cifar10"}[scale]
        weights = build(recipe.model, SHAPES[name], 10, 1).weights()
        sizes[row] = sum(array.size for array in weights.values())
    for experts, row in ((2, "FedAvg, bytes of K=2"), (4, "FedAvg, bytes of K=4")):
        assert sizes[row] / sizes["FedAvg"] == pytest.approx(experts, rel=0.01)
        assert sizes[f"FedMoE K={experts}"] == sizes["FedAvg"]


@pytest.mark.parametrize("name", ["moe-newshard", "moe-figure11"])
@pytest.mark.parametrize("scale", ENDS)
def test_known_devices_and_a_new_shard_are_scores_of_one_run(
    name: str, scale: Scale, tmp_path: Path
) -> None:
    known, new, union = find(name).scales[scale].columns
    assert (known.score, new.score) == (
        PaperScore("accuracy_participant"),
        PaperScore("accuracy_newcomer"),
    )
    assert union.score == PaperScore("final_accuracy")
    found = recipes(name, scale, tmp_path)
    for row in {row for row, _ in found}:
        one = found[row, known.of]
        assert len({trial_digest(found[row, each.of]) for each in (known, new, union)}) == 1
        has_gates = one.algorithm.settings().get("collect_gates", False)
        assert has_gates == (one.algorithm.name == "fedmoe")
        assert one.simulation.devices - one.simulation.newcomers >= one.rounds.cohort
    everyone = study_of("moe-figure4", scale, tmp_path / "all").cells[0].case.recipe.simulation
    assert one.simulation.devices - one.simulation.newcomers == everyone.devices


def test_experts_by_rotation_are_told_every_rotation(tmp_path: Path) -> None:
    found = recipes("moe-rotation", "smoke", tmp_path)
    recipe = found["FedMoE by rotation", "rotation"]
    test = load(recipe.data, None, 1).test
    settings = recipe.algorithm.settings()
    assert settings["condition"] in test.columns
    assert set(test.columns["rotation"].tolist()) == set(range(settings["condition_values"]))


def outcome(table: str, row: str, tmp_path: Path, changes: Mapping[str, Any]) -> TrialResult:
    """Run a row of a table at its smallest scale for one round, with changes to its recipe."""
    cells = study_of(table, "smoke", tmp_path / "study").cells
    cell = next(each for each in cells if each.row.label == row)
    values = cell.case.recipe.model_dump()
    for section, keys in {"rounds": {"count": 1}, **changes}.items():
        values[section] |= keys
    case = SweepCase(row, {}, Recipe.model_validate(values))
    ended = run_trials(Plan((case,), (1,)), tmp_path / "out", SystemClock())
    assert ended.failures == {}
    return ended.results[trial_digest(case.recipe.model_copy(update={"seed": 1}))]


def test_a_run_is_scored_by_its_clusters(tmp_path: Path) -> None:
    two = {
        "algorithm": {"experts": 2},
        "data": {"permutations": 2, "limit": 400},
        "simulation": {"devices": 6, "holdout": 0.1},
    }
    result = outcome("moe-permutation", "experts from updates", tmp_path, two)
    assert scored(result, PaperScore("cluster_accuracy")) == 1
    assert scored(result, PaperScore("cluster_purity")) == 1


def test_a_new_client_is_scored_with_the_gates_that_were_collected(tmp_path: Path) -> None:
    few = {"data": {"limit": 200}, "simulation": {"devices": 5}}
    result = outcome("moe-vae", "FedMoE K=4, p(s)", tmp_path, few)
    recipe = Recipe.model_validate(result.recipe)
    ended = Simulation(recipe, tmp_path / "again", SystemClock()).run()
    assert scored(result, PaperScore("final_accuracy")) == ended.final["accuracy"]
    assert ended.final["loss"] != ended.record.loss == result.loss, "each expert weighed its load"
    plain = outcome("moe-vae", "FedAvg", tmp_path, few)
    assert (
        scored(plain, PaperScore("final_accuracy")) == plain.accuracy == scored(plain, PaperScore())
    )
