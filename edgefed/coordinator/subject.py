"""What a run is about: its model, and the coordinator's own samples to test it on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefed.algorithms.base import Predictor, Roster
from edgefed.config.recipe import LossName, Recipe
from edgefed.data.datasets import Dataset, load
from edgefed.errors import DataError
from edgefed.learn.devices import pick_device
from edgefed.learn.model_memory import build_within, default_memory
from edgefed.learn.models import Model
from edgefed.learn.targets import check_targets
from edgefed.learn.training import Trainer
from edgefed.learn.types import Samples, Score
from edgefed.seeds import derive


@dataclass(frozen=True)
class Subject:
    """A model and a test set.

    Attributes:
        trainer: runs the model for tests on the coordinator.
        test: the coordinator's held-out samples; empty when it has none.
    """

    model: Model
    trainer: Trainer
    shape: tuple[int, ...]
    classes: int
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


def make_subject(recipe: Recipe, dataset: Dataset, roster: Roster, memory: int = 0) -> Subject:
    """Return the subject of a run; without central data, its shapes are what the devices announce.

    Args:
        recipe: what is trained.
        dataset: the coordinator's.
        roster: the devices.
        memory: most bytes that training may take; 0 for half of what is free.

    Raises:
        ModelTooLargeError: training takes more.
        DataError: the devices' data do not fit together, or none says what it is.
        RecipeError: there is no such model, or it does not take such inputs.
    """
    shape, classes = dataset.shape, dataset.classes
    if not classes:
        shape, classes = _announced(roster)
    model = make_model(recipe, shape, classes, memory)
    return Subject(model, Trainer(model), shape, classes, dataset.test)


def make_model(recipe: Recipe, shape: tuple[int, ...], classes: int, memory: int) -> Model:
    """Return the model of a run with its initial weights; see ``make_subject``."""
    available = memory or default_memory(pick_device())
    seed = derive(recipe.seed, "weights")
    return build_within(recipe.model, shape, classes, seed, available, allow_user=True)


def _announced(roster: Roster) -> tuple[tuple[int, ...], int]:
    shapes = {member.shape for member in roster if member.samples}
    if len(shapes) != 1:
        told = ", ".join(
            f"{member.device} {'x'.join(map(str, member.shape))}" for member in roster[:6]
        )
        raise DataError(
            f"The devices' inputs differ in shape: {told}." if shapes else "No device has data.",
            code="data.shape",
            hint="edgefed device list",
        )
    return shapes.pop(), max(member.classes for member in roster)


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
