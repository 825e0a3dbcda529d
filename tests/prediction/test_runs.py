"""Models of simulated runs, of every algorithm that saves several, predict as their runs do."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from edgefed.algorithms.composed.registry import make
from edgefed.config.recipes.recipe import Recipe
from edgefed.coordinator.models.run_model import load_dataset
from edgefed.coordinator.storage.run_store import Store
from edgefed.errors import UsageError
from edgefed.learn.modeling.model_building import build
from edgefed.learn.training.trainer import ModelPredictions, Trainer
from edgefed.prediction.load import load_model
from edgefed.seeds import derive
from tests.cli.commands import TINY, edgefed, recipe_file


def simulated(state: Path, *words: str) -> Path:
    """Simulate a run and return its folder."""
    told = edgefed(
        "--quiet", "sim", "run", recipe_file(state, TINY), "--rounds", "1", "--json", *words,
        state=state,
    )  # fmt: skip
    assert told.code == 0, told
    return Path(state, "simulations", "runs", told.json["run"])


@pytest.mark.parametrize(
    "words",
    [
        ("--algorithm", "ensemble", "--set", "algorithm.weighting=examples"),
        ("--algorithm", "ifca"),
        ("--algorithm", "fedmoe"),
        ("--algorithm", "fedma"),
        ("--algorithm", "fedavg", "--set", "model.train=head"),
    ],
    ids=lambda words: "-".join(words[1::2]),
)
def test_a_runs_model_predicts_what_its_algorithm_does(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    folder = simulated(tmp_path, *words)
    with closing(Store(tmp_path / "simulations")) as store:
        record, checkpoint = store.run(folder.name), store.checkpoint(folder.name)
    assert checkpoint is not None
    model = load_model(folder, device="cpu")
    recipe = Recipe.model_validate_json(record.recipe)
    inputs = load_dataset(recipe, None).test.inputs[:50]
    algorithm = make(recipe)
    section = algorithm.model(checkpoint.state) or recipe.model
    own = build(section, model.shape, 10, derive(recipe.seed, "weights"))
    predictor = algorithm.predictor(checkpoint.state, ModelPredictions(Trainer(own, "cpu")))
    scores = torch.from_numpy(np.asarray(predictor(inputs), np.float64))
    right = torch.softmax(scores, dim=1).numpy()
    assert right.std(axis=0).max() > 1e-3
    assert np.allclose(model.predict(inputs).probabilities, right, atol=1e-5)
    assert (model.description.run, model.description.round) == (folder.name, 1)


def test_experts_with_gates_are_used_one_by_one(tmp_path: Path) -> None:
    words = ("--algorithm", "fedmoe", "--set", "algorithm.collect_gates=true")
    folder = simulated(tmp_path, *words)
    with pytest.raises(UsageError) as caught:
        load_model(folder)
    assert (caught.value.code, "expert-0" in caught.value.hint) == ("model.several", True)
    images = np.zeros((2, 1, 8, 8), np.float32)
    assert load_model(folder, model="expert-1").predict(images).probabilities.shape == (2, 10)
