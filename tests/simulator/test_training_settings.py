"""Schedules, clipping, smoothing and class weights in whole simulations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch.nn import functional

from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import RecipeError
from edgefed.simulator.run import Simulation
from tests.run_fixture import Ticking, samples
from tests.simulator.work import finished, write_samples

ALL: dict[str, Any] = {
    "optimizer": "adamw",
    "learning_rate": 0.01,
    "weight_decay": 0.1,
    "schedule": "cosine",
    "warm_up": 0.25,
    "max_gradient_norm": 0.5,
    "label_smoothing": 0.1,
    "class_weights": "balanced",
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "data.npz"
    return write_samples(path, samples(60, 1), samples(12, 2))


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with all settings."""
    return finished(plan(data, ALL), tmp_path_factory.mktemp("whole")).folder


def plan(data: Path, training: dict[str, Any], **sections: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "seed": 3,
            "model": {"name": "mlp", "hidden": []},
            "data": {"name": "npz", "path": str(data), "partition": "classes"},
            "training": {"batch_size": 5, **training},
            "rounds": {"count": 4},
            "wire": {"downlink": "fp32", "uplink": "fp32"},
            "simulation": {"devices": 3, "workers": 1},
            **sections,
        }
    )


def weights(folder: Path) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
    (model,) = folder.rglob("model.safetensors")
    return load_file(model)


def test_one_step_a_round_over_the_run_is_the_run_with_the_decay_of_the_same_rates(
    data: Path, tmp_path: Path
) -> None:
    """A step schedule over rounds halves the rate as ``learning_rate_decay`` does."""
    stepping = {"schedule": "step", "schedule_over": "run", "step_every": 1, "step_factor": 0.5}
    one = finished(plan(data, stepping), tmp_path / "schedule")
    other = finished(plan(data, {"learning_rate_decay": 0.5}), tmp_path / "decay")
    assert one.record.weights_digest == other.record.weights_digest


def test_the_loss_of_an_evaluation_is_neither_smoothed_nor_weighted(
    data: Path, tmp_path: Path
) -> None:
    numbers = {**ALL, "class_weights": [5, 0.1, 1], "label_smoothing": 0.5}
    record = finished(plan(data, numbers), tmp_path).record
    found, test = weights(tmp_path), samples(12, 2)
    logits = torch.from_numpy(test.inputs) @ torch.from_numpy(found["out.weight"]).T
    logits = logits + torch.from_numpy(found["out.bias"])
    plain = functional.cross_entropy(logits, torch.from_numpy(test.targets))
    assert record.loss == pytest.approx(float(plain), rel=1e-5)


@pytest.mark.parametrize("wrong", [[1, 2], [1, 2, 3, 4]])
def test_weights_of_other_classes_are_refused_before_anything_is_written(
    wrong: list[float], data: Path, tmp_path: Path
) -> None:
    with pytest.raises(RecipeError, match="and the run has 3 classes"):
        Simulation(plan(data, {"class_weights": wrong}), tmp_path / "state", Ticking())
    assert not (tmp_path / "state").exists()
