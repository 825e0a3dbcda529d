"""What a run is about: its model, and the coordinator's own samples to test it on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefed.algorithms.base import Predictor
from edgefed.config.recipe import LossName, Recipe
from edgefed.coordinator.compatibility import DataSpec
from edgefed.data.datasets import Dataset, load
from edgefed.learn.models import Model, build
from edgefed.learn.targets import check_targets
from edgefed.learn.training import Trainer
from edgefed.learn.types import Samples, Score
from edgefed.seeds import derive


@dataclass(frozen=True)
class Subject:
    """A model and a test set.

    Attributes:
        trainer: runs the model for tests on the coordinator.
        spec: what the data look like, the coordinator's and the devices'.
        test: the coordinator's held-out samples; empty when it has none.
    """

    model: Model
    trainer: Trainer
    spec: DataSpec
    test: Samples


def load_dataset(recipe: Recipe, folder: Path | None) -> Dataset:
    """Return the recipe's data set."""
    return load(recipe.data, folder, derive(recipe.seed, "data"))


def check_dataset(recipe: Recipe, dataset: Dataset) -> None:
    """Check that the data set's targets are what the recipe's loss is of.

    Raises:
        DataError: they are not.
    """
    where = f"data set '{recipe.data.name}'"
    check_targets(recipe.training.loss, where, dataset.train, dataset.test)


def make_subject(recipe: Recipe, dataset: Dataset, spec: DataSpec) -> Subject:
    """Return the subject of a run.

    Raises:
        RecipeError: there is no such model, or it does not take such inputs.
    """
    seed = derive(recipe.seed, "weights")
    model = build(recipe.model, spec.shape, spec.classes, seed, allow_user=True)
    return Subject(model, Trainer(model), spec, dataset.test)


def score(predictor: Predictor, samples: Samples, loss: LossName = "cross_entropy") -> Score:
    """Return mean loss and accuracy of a predictor's outputs; squared error has no accuracy."""
    scores, targets = predictor(samples.inputs).astype(np.float64), samples.targets
    if loss == "squared_error":
        return Score(float(np.square(scores - targets).mean()), None, len(targets))
    shifted = scores - scores.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    if samples.has_labels:
        each, labels = log_softmax[np.arange(len(targets)), targets], targets
    else:
        each, labels = (log_softmax * targets).sum(axis=1), targets.argmax(axis=1)
    return Score(
        loss=float(-each.mean()),
        accuracy=float((scores.argmax(axis=1) == labels).mean()),
        samples=len(targets),
    )
