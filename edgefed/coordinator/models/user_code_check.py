"""Check a recipe's user code: whether it may be imported here, and whether the run can use it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from edgefed.algorithms.interface.base import Algorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.user_functions import METRIC_NAME, metric_name
from edgefed.data.base.types import Dataset
from edgefed.errors import RecipeError
from edgefed.files.user_code import (
    Kind,
    are_classes_allowed,
    class_refused,
    is_own_class,
    refused,
)
from edgefed.learn.base.types import Array
from edgefed.learn.modeling.model import Model
from edgefed.learn.modeling.user_models import is_user_model
from edgefed.learn.training.user_losses import is_user_loss, try_out_loss
from edgefed.learn.training.user_metrics import find_metrics

TAKEN = frozenset(
    {
        "accuracy",
        "balanced_accuracy",
        "devices",
        "late",
        "loss",
        "macro_f1",
        "macro_precision",
        "received",
        "replies",
        "round",
        "run",
        "seconds",
        "sent",
        "train_loss",
    }
)
"""Names in a round's row that a user's metric cannot have."""

TAKEN_BEGINNINGS = ("accuracy_", "device_", "devices_", "loss_", "top", "validation_")

FEW = 2
"""Samples on whose targets a loss is tried out."""


def check_code_allowed(recipe: Recipe, user_models: bool) -> None:
    """Check, without importing anything, that this program may run the recipe's user code.

    Raises:
        DataError: ``model.refused``, ``loss.refused`` or ``metric.refused``: the recipe names code
            of a user's own, which ``user_models`` does not allow.
        PluginError: ``code.refused``: it names a class of a user's own, and this is no simulation.
    """
    for noun, name in own_classes(recipe):
        if not are_classes_allowed():
            raise class_refused(noun, name)
    for kind, name in _user_code(recipe):
        if not user_models:
            raise refused(kind, name)


def own_classes(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield the algorithm, data set, partition and selector of a user's own: noun and name."""
    names = {
        "algorithm": recipe.algorithm.name,
        "data set": recipe.data.name,
        "partition": recipe.data.partition,
        "selector": recipe.selection.name,
    }
    yield from ((noun, name) for noun, name in names.items() if is_own_class(name))


def code_of_devices(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield the user code of a recipe that devices run: noun and name."""
    yield from (code for code in own_classes(recipe) if code[0] == "algorithm")
    yield from _user_code(recipe)


def _user_code(recipe: Recipe) -> Iterator[tuple[Kind, str]]:
    """Yield the user code that a recipe names."""
    if is_user_model(recipe.model.name):
        yield "model", recipe.model.name
    if is_user_loss(recipe.training.loss):
        yield "loss", recipe.training.loss
    for name in recipe.evaluation.metrics:
        yield "metric", name


def try_out_code(recipe: Recipe, algorithm: Algorithm[Any], model: Model, dataset: Dataset) -> None:
    """Check that a user's loss and metrics can be used in a run, before any device is asked.

    Raises:
        RecipeError: as ``check_code_fits``, or there is no such function.
        DataError: the loss fails, or returns no loss.
    """
    check_code_fits(recipe, algorithm)
    find_metrics(recipe.evaluation.metrics)
    if not is_user_loss(recipe.training.loss):
        return
    targets = _few_targets(dataset)
    if recipe.labels.wanted and targets is not None and targets.ndim > 1:
        raise RecipeError(
            "The recipe asks for supplements of missing labels, and the targets are numbers.",
            code="label.unfit",
            hint="remove the [labels] table",
        )
    try_out_loss(recipe.training.loss, model.classes, targets)


def check_code_fits(recipe: Recipe, algorithm: Algorithm[Any]) -> None:
    """Check, without importing anything, that a run can use a user's loss and metrics.

    Raises:
        RecipeError: the algorithm takes no other loss, or a metric's name is in use.
    """
    _check_names(recipe.evaluation.metrics)
    if is_user_loss(recipe.training.loss) and not algorithm.takes_user_loss:
        raise RecipeError(
            f"{recipe.algorithm.name} with these settings cannot train with a loss of your own.",
            code="algorithm.loss",
            hint='set training.loss = "cross_entropy", or choose fedavg',
        )


def _few_targets(dataset: Dataset) -> Array | None:
    """Return targets of the coordinator's own samples; None where it has none."""
    for part in (dataset.test, dataset.train):
        if len(part):
            return part.targets[:FEW]
    return None


def _check_names(metrics: tuple[str, ...]) -> None:
    """Check that the names of metrics are different."""
    for name, count in Counter(map(metric_name, metrics)).items():
        if not METRIC_NAME.fullmatch(name):
            raise RecipeError(
                f"A metric cannot be called {name[:80]!r}: its name becomes a column of files.",
                code="metric.name",
                hint="give the function a name of up to 64 ASCII letters, digits and underscores",
            )
        if count > 1 or name in TAKEN or name.startswith(TAKEN_BEGINNINGS):
            raise RecipeError(
                f"The name {name!r} of a metric is taken.",
                code="metric.name",
                hint="give the function another name",
            )
