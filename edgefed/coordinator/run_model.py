"""What a run is about: its model, and the coordinator's own samples to test it on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgefed.config.recipe import Recipe
from edgefed.coordinator.compatibility import DataSpec
from edgefed.data.datasets import Dataset, load
from edgefed.learn.devices import pick_device
from edgefed.learn.model_memory import build_within, default_memory
from edgefed.learn.models import Model
from edgefed.learn.targets import check_targets
from edgefed.learn.training import Trainer
from edgefed.learn.types import Samples
from edgefed.learn.user_models import is_user_model, refused
from edgefed.seeds import derive


@dataclass(frozen=True)
class RunModel:
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


def check_model_allowed(recipe: Recipe, user_models: bool) -> None:
    """Check, without importing anything, that this program may run the recipe's model.

    Raises:
        DataError: ``model.refused``: it is a user's own code, which ``user_models`` does not allow.
    """
    if is_user_model(recipe.model.name) and not user_models:
        raise refused(recipe.model.name)


def make_run_model(
    recipe: Recipe,
    dataset: Dataset,
    spec: DataSpec,
    *,
    user_models: bool = False,
    memory: int = 0,
) -> RunModel:
    """Return the subject of a run.

    Args:
        recipe: names the model.
        dataset: central data, which may be none.
        spec: shape and classes of the run's data.
        user_models: whether the model may be a user's own code, which is then imported.
        memory: most bytes that training may take; 0 for half of what is free.

    Raises:
        ModelTooLargeError: training takes more.
        DataError: ``model.refused``.
        RecipeError: there is no such model, or it does not take such inputs.
    """
    model = make_model(recipe, spec.shape, spec.classes, memory, user_models=user_models)
    return RunModel(model, Trainer(model), spec, dataset.test)


def make_model(
    recipe: Recipe,
    shape: tuple[int, ...],
    classes: int,
    memory: int,
    *,
    user_models: bool = False,
) -> Model:
    """Return the model of a run with its initial weights; see ``make_run_model``."""
    available = memory or default_memory(pick_device())
    seed = derive(recipe.seed, "weights")
    return build_within(recipe.model, shape, classes, seed, available, allow_user=user_models)
