"""A run's models, and the coordinator's own samples for tests."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.coordinator.models.augmentation import with_run_scale
from edgefed.coordinator.models.user_code_check import check_code_allowed
from edgefed.coordinator.storage.compatibility import DataSpec
from edgefed.data.base.holdout import held_out_positions
from edgefed.data.base.types import take
from edgefed.data.sets.datasets import Dataset, load
from edgefed.errors import UsageError
from edgefed.learn.base.processors import pick_device
from edgefed.learn.base.types import Samples, Tensors
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.model_building import complete_model
from edgefed.learn.modeling.model_memory import build_within, default_memory
from edgefed.learn.training.targets import check_targets
from edgefed.learn.training.trainer import Trainer
from edgefed.learn.training.warm_trainers import Trainers
from edgefed.seeds import derive, generator


class ModelTrainers:
    """Trainers on the coordinator: of the recipe's model, and of models that replace it.

    Args:
        section: the recipe's ``[model]`` table.
        own: the trainer of its model.
        spec: the form of the data.
        memory: most bytes that training another model may take; 0 for half of the free memory.
        user_models: whether another model may be a user's own code.
    """

    def __init__(
        self, section: ModelSection, own: Trainer, spec: DataSpec, memory: int, user_models: bool
    ) -> None:
        self._section = complete_model(section)
        self._own = own
        self._spec = spec
        self._user_models = user_models
        self._others = Trainers(None, memory)

    def get(self, section: ModelSection | None) -> Trainer:
        """Return the trainer of a model; None stands for the recipe's own.

        Raises:
            ModelTooLargeError: training it takes too much memory.
            RecipeError, DataError: it cannot be built.
        """
        wanted = None if section is None else complete_model(section)
        if wanted is None or wanted == self._section:
            return self._own
        return self._others.get(
            wanted.model_dump(mode="json"),
            self._spec.shape,
            self._spec.classes,
            allow_user=self._user_models,
        )


@dataclass(frozen=True)
class RunModel:
    """A model and a test set.

    Attributes:
        model: the recipe's own, with which a run starts.
        trainers: run models for tests on the coordinator.
        spec: the form of the data, the coordinator's and the devices'.
        test: the coordinator's held-out samples; empty when it has none.
        validation: its samples for choosing; None when it has none.
    """

    model: Model
    trainers: ModelTrainers
    spec: DataSpec
    test: Samples
    validation: Samples | None = None


def load_dataset(recipe: Recipe, folder: Path | None) -> Dataset:
    """Return the recipe's data set, images scaled as the run's, with its validation samples.

    Raises:
        UsageError: as ``with_validation``.
    """
    dataset = load(recipe.data, folder, derive(recipe.seed, "data"))
    return with_validation(recipe, with_run_scale(recipe, dataset))


def with_validation(recipe: Recipe, dataset: Dataset) -> Dataset:
    """Return a data set with the training samples set apart that the recipe asks for.

    They are drawn from the run's seed, in proportion to the labels.

    Raises:
        UsageError: ``evaluation.validation``: there are no training samples to take them from.
    """
    share = recipe.evaluation.validation_share
    if not share:
        return dataset
    if len(dataset.train) < 2:
        raise UsageError(
            "evaluation.validation_share takes training samples, and data set"
            f" '{recipe.data.name}' has too few.",
            code="evaluation.validation",
            hint="set it to 0, or name a data set with training samples in [data]",
        )
    rng = generator(recipe.seed, "validation")
    kept, held = held_out_positions(dataset.train.targets, share, rng)
    return replace(
        dataset,
        train=take(dataset.train, kept),
        validation=take(dataset.train, held),
        groups=None if dataset.groups is None else dataset.groups[kept],
    )


def check_dataset(recipe: Recipe, dataset: Dataset) -> None:
    """Check that the data set's targets suit the recipe's loss.

    Raises:
        DataError: they are not.
    """
    where = f"data set '{recipe.data.name}'"
    check_targets(recipe.training.loss, where, dataset.train, dataset.test)


def make_run_model(
    recipe: Recipe,
    dataset: Dataset,
    spec: DataSpec,
    *,
    user_models: bool = False,
    memory: int = 0,
    frozen: Tensors | None = None,
) -> RunModel:
    """Return the model and the test set of a run.

    Args:
        recipe: names the model.
        dataset: central data, which may be none.
        spec: shape and classes of the run's data.
        user_models: whether the recipe may name users' own code, which is then imported.
        memory: most bytes that training may take; 0 for half of the free memory.
        frozen: the frozen weights of a run that has begun; none of a new one, or of a model
            without.

    Raises:
        ModelTooLargeError: training takes more.
        DataError: ``model.refused``, ``loss.refused`` or ``metric.refused``; ``model.weights``: the
            frozen weights are another model's.
        RecipeError: there is no such model, or it does not take such inputs.
    """
    model = make_model(recipe, spec.shape, spec.classes, memory, user_models=user_models)
    if frozen:
        model.put_frozen(frozen)
    trainers = ModelTrainers(recipe.model, Trainer(model), spec, memory, user_models)
    return RunModel(model, trainers, spec, dataset.test, dataset.validation)


def make_model(
    recipe: Recipe,
    shape: tuple[int, ...],
    classes: int,
    memory: int,
    *,
    user_models: bool = False,
) -> Model:
    """Return the model of a run with its initial weights; see ``make_run_model``."""
    check_code_allowed(recipe, user_models)
    available = memory or default_memory(pick_device())
    seed = derive(recipe.seed, "weights")
    return build_within(recipe.model, shape, classes, seed, available, allow_user=user_models)
