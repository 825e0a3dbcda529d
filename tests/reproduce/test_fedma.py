"""The tables of matched averaging: recipes, what is pooled, and that the smallest scale learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgefed.api.recipe_source import checked
from edgefed.data.base.types import Array
from edgefed.data.devices.partition import deal
from edgefed.data.sets.datasets import load
from edgefed.reproduce.measure import entries
from edgefed.reproduce.outputs import text
from edgefed.reproduce.paper_tables import find
from edgefed.reproduce.plan import make_study
from edgefed.reproduce.table import Scale
from edgefed.simulator.sweep.plan import trial_digest
from edgefed.simulator.sweep.trials import run_trials
from tests.reproduce.layout import ENDS, recipes
from tests.run_fixture import Ticking

pytest.importorskip("sklearn", reason="the digits are not installed")

FEDMA, ESTIMATED, AT_ONCE = "FedMA", "FedMA, estimated variances", "matched at once"
POOLED = "pooled training"


def test_fedma_on_images_is_set_up_as_published(tmp_path: Path) -> None:
    found = recipes("fedma-table1", "paper", tmp_path)
    recipe = found[FEDMA, "CIFAR-10"]
    settings, training = recipe.algorithm.settings(), recipe.training
    assert (recipe.model.name, recipe.simulation.devices, recipe.data.alpha) == ("vgg9", 16, 0.5)
    assert (training.learning_rate, training.momentum, training.weight_decay) == (0.01, 0.9, 1e-4)
    assert (training.epochs, training.batch_size) == (20, 64)
    assert (settings["reference"], settings["initial"]) == (True, "independent")
    assert (settings["last_epochs"], settings["last_learning_rate"]) == (60, 0.1)
    assert "retrain_epochs" not in settings, "as many as local epochs"
    assert settings["gamma"] == 7
    assert settings["layer_codec"] == recipe.wire.uplink == "fp32"
    assert not found[ESTIMATED, "CIFAR-10"].algorithm.settings().get("reference", False)


def test_fedma_on_texts_is_set_up_as_published(tmp_path: Path) -> None:
    found = recipes("fedma-table1", "paper", tmp_path)
    recipe = found[FEDMA, "Shakespeare"]
    settings = recipe.algorithm.settings()
    assert (settings["gamma"], settings["reference"]) == (1e-3, True)
    assert (settings["recurrent"], settings["last_layer"]) == ("padded", "uniform")
    assert (settings["last_epochs"], settings["last_learning_rate"]) == (5, 1.0)
    assert recipe.training.carry_state
    assert (recipe.training.batch_size, recipe.training.learning_rate) == (50, 0.25)
    epochs = {row: found[row, "Shakespeare"].training.epochs for row in ("FedAvg", "FedProx")}
    assert epochs == {"FedAvg": 2, "FedProx": 5}
    assert found["Ensemble", "Shakespeare"].rounds.count == 1
    every = recipes("fedma-shakespeare", "paper", tmp_path)
    assert every[FEDMA, "E = 5"].training == recipe.training
    assert every[FEDMA, "E = 5"].algorithm == recipe.algorithm


@pytest.mark.parametrize("name", ["fedma-table1", "fedma-shakespeare", "fedma-lenet"])
@pytest.mark.parametrize("scale", ENDS)
def test_what_is_matched_at_once_is_trained_in_one_round_and_not_retrained(
    name: str, scale: Scale, tmp_path: Path
) -> None:
    for (row, column), recipe in recipes(name, scale, tmp_path).items():
        if row.startswith(AT_ONCE):
            settings = recipe.algorithm.settings()
            assert (settings["retrain_epochs"], recipe.rounds.count) == (0, 1), column
            assert settings["initial"] == "independent"


@pytest.mark.parametrize("name", ["fedma-table1", "fedma-bias", "fedma-growing", "pfnm-mnist"])
@pytest.mark.parametrize("scale", ENDS)
def test_pooled_training_has_the_parts_of_all_devices(
    name: str, scale: Scale, tmp_path: Path
) -> None:
    found = recipes(name, scale, tmp_path)
    pooled = {key: each for key, each in found.items() if key[0].startswith("pooled")}
    assert pooled
    for (_, column), recipe in pooled.items():
        devices = found["FedAvg", column].simulation.devices
        parts = recipe.data.settings()["parts_per_device"]
        assert (recipe.simulation.devices, parts) == (1, devices)


def test_the_biased_devices_and_their_pools(tmp_path: Path) -> None:
    found = {row: each for (row, _), each in recipes("fedma-bias", "smoke", tmp_path).items()}
    dataset = load(found[FEDMA].data, None, 1)
    assert _grey(dataset.test.inputs).mean() == pytest.approx(0.5, abs=0.01)
    apart = deal(dataset, found[FEDMA].data, 2, 0.0, 1)
    assert [round(_grey(each.train.inputs).mean(), 2) for each in apart] == [0.95, 0.05]
    assert all(len(set(each.train.targets.tolist())) == 5 for each in apart)
    shares = {}
    for row, recipe in found.items():
        if row.startswith("pooled"):
            data = load(recipe.data, None, 1)
            (shard,) = deal(data, recipe.data, 1, 0.0, 1)
            grey = _grey(shard.train.inputs)
            first = np.isin(shard.train.targets, apart[0].train.targets)
            shares[row] = grey[first].mean(), grey[~first].mean(), _grey(data.test.inputs).mean()
    assert shares[POOLED] == pytest.approx((0.95, 0.05, 0.5), abs=0.01)
    assert shares["pooled, balanced"] == pytest.approx((0.5, 0.5, 0.5), abs=0.01)
    assert shares["pooled, oversampled"] == pytest.approx((0.5, 0.5, 0.5), abs=0.01)
    assert shares["pooled, no bias"] == (0, 0, 0)


def _grey(inputs: Array) -> Array:
    """Return which images (n,) have the same value in all channels."""
    return np.asarray((np.abs(inputs - inputs[:, :1]) < 1e-6).all(axis=(1, 2, 3)))


@pytest.mark.parametrize("scale", ENDS)
def test_growing_devices_keep_their_size(scale: Scale, tmp_path: Path) -> None:
    for (row, column), recipe in recipes("fedma-growing", scale, tmp_path).items():
        keys, devices = recipe.data.settings(), int(column.removeprefix("J = "))
        assert recipe.data.partition == "growing", row
        assert keys["pieces_used"] * 2 == devices
        assert recipe.simulation.devices * keys.get("parts_per_device", 1) == devices


def test_the_grid_of_pfnm_is_the_published_one(tmp_path: Path) -> None:
    found = recipes("pfnm-grid", "paper", tmp_path)
    points = set()
    for (row, _), recipe in found.items():
        keys = recipe.algorithm.settings()
        if row.startswith("gamma"):
            assert keys["reference"]
            points.add((keys["gamma"], keys["sigma"], keys["sigma0"]))
    assert points == {(g, s, z) for g in (1, 1e-3, 50) for s in (1, 0.1, 0.5) for z in (1, 10)}
    estimated = {trial_digest(each) for (row, _), each in found.items() if row.startswith("est")}
    assert len(estimated) == 1, "run once for all columns"


@pytest.mark.parametrize(
    ("table", "column", "rows", "chance"),
    [
        ("fedma-shakespeare", "E = 2", (FEDMA, "Ensemble"), 0.19),
        ("pfnm-mnist", "Dirichlet 0.5", ("PFNM", "PFNM, one round"), 0.1),
    ],
)
def test_the_smallest_scale_learns(
    table: str, column: str, rows: tuple[str, ...], chance: float, tmp_path: Path
) -> None:
    study = make_study(
        find(table), "smoke", checked, seeds=(1,), rows=rows, columns=(column,), scratch=tmp_path
    )
    outcome = run_trials(study.plan(), tmp_path, Ticking())
    assert outcome.failures == {}
    found = {each.cell.row.label: each for each in entries(study, outcome)}
    assert set(found) == set(rows)
    for row, entry in found.items():
        assert (entry.accuracy.mean or 0) > 1.5 * chance, row
        is_matched = entry.cell.case.recipe.algorithm.name in ("fedma", "pfnm")
        assert is_matched == ((entry.growth.mean or 0) >= 1)
    assert "GROWTH" in text(study, outcome)
