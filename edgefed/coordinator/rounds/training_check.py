"""Check that an algorithm can train a model as a recipe says, before any device is asked."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from edgefed.algorithms.composed.evaluation_place import evaluation_place
from edgefed.algorithms.interface.carried_state import check_carried_state
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.private.privacy_plan import check_privacy
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.user_functions import metric_name
from edgefed.coordinator.models.augmentation import check_augmentation
from edgefed.coordinator.models.user_code_check import (
    TAKEN_BEGINNINGS,
    check_code_fits,
    try_out_code,
)
from edgefed.coordinator.rounds.evaluation import VALIDATION
from edgefed.coordinator.rounds.starting_weights import check_sources, unknown_weights
from edgefed.data.base.types import Dataset
from edgefed.errors import UsageError
from edgefed.learn.modeling.model import Model
from edgefed.learn.objectives.smoothing_and_weights import check_class_weights

SCORES = ("accuracy", "balanced_accuracy", "loss", "macro_f1", "macro_precision", "device_accuracy")
"""Scores with which a mistyped ``evaluation.best_metric`` is compared."""


def check_training(
    recipe: Recipe, algorithm: CompleteAlgorithm[Any], model: Model, dataset: Dataset
) -> None:
    """Check user code, augmentation, class weights, the algorithm's demands, the best metric.

    Args:
        recipe: with the augmentation that its data set declares.
        algorithm: the recipe's; it may store facts about the model.
        model: the recipe's.
        dataset: the recipe's, on a few samples of which a user's loss is tried out.

    Raises:
        DataError, RecipeError, UsageError: the run cannot be trained.
    """
    try_out_code(recipe, algorithm, model, dataset)
    check_augmentation(recipe, model.shape)
    check_class_weights(recipe.training.class_weights, model.classes)
    algorithm.check_model(model)
    check_carried_state(algorithm, model)
    _check_best_metric(recipe, algorithm)
    _check_validation(recipe, algorithm)


def check_combination(recipe: Recipe, algorithm: CompleteAlgorithm[Any]) -> None:
    """Check a recipe's combination of settings as far as possible without data and devices.

    The algorithm's constructor has already refused combinations that it does not support.

    Raises:
        RecipeError, UsageError: a run of the recipe would be refused.
    """
    check_code_fits(recipe, algorithm)
    algorithm.check_recipe(recipe.model)
    classes = recipe.data.classes
    if classes:
        count = classes if isinstance(classes, int) else len(classes)
        check_class_weights(recipe.training.class_weights, count)
    _check_best_metric(recipe, algorithm)
    _check_validation(recipe, algorithm)
    check_sources(recipe.model)
    unknown_weights(recipe.model)
    check_privacy(recipe)


def _check_best_metric(recipe: Recipe, algorithm: CompleteAlgorithm[Any]) -> None:
    """Check that evaluations can give the score that selects the best round.

    The first evaluation shows the other scores (``EvaluationHistory.check``).
    """
    metric = recipe.evaluation.best_metric
    if reason := score_problem(metric, recipe, algorithm):
        raise UsageError(
            f"No evaluation gives {metric!r}: {reason}.",
            code="evaluation.metric",
            hint="set evaluation.best_metric to loss, or change evaluation.on",
        )


def _check_validation(recipe: Recipe, algorithm: CompleteAlgorithm[Any]) -> None:
    """Check that the coordinator tests the model, if it is to keep validation samples."""
    share, place = recipe.evaluation.validation_share, evaluation_place(recipe, algorithm)
    if share and place == "devices":
        raise UsageError(
            "evaluation.validation_share is of the coordinator's samples, and devices alone test.",
            code="evaluation.validation",
            hint='set evaluation.on = "both", or evaluation.validation_share = 0',
        )


def score_problem(
    metric: str,
    recipe: Recipe,
    algorithm: CompleteAlgorithm[Any],
    *,
    others: Sequence[str] = (),
) -> str:
    """Return why no row of a recipe's rounds can have a metric; nothing if one may.

    Args:
        metric: its name.
        recipe: of the run.
        algorithm: the recipe's.
        others: names of metrics beside scores.
    """
    if meant := _meant(metric, recipe, others):
        return f"did you mean {meant!r}?"
    if recipe.training.loss == "squared_error" and "accuracy" in metric.split("_"):
        return "squared error has no accuracy"
    if metric.startswith("device_") and evaluation_place(recipe, algorithm) == "coordinator":
        return "devices do not evaluate the model"
    if metric.startswith(VALIDATION) and not recipe.evaluation.validation_share:
        return "it needs evaluation.validation_share"
    return ""


def _meant(metric: str, recipe: Recipe, others: Sequence[str]) -> str:
    """Return the score that a mistyped name resembles; nothing for names that may be given."""
    own = [metric_name(own_metric) for own_metric in recipe.evaluation.metrics]
    names = [*SCORES, *own, *others]
    # Such names end with a mode or a number, which no list of scores has
    if metric in names or metric.startswith(TAKEN_BEGINNINGS):
        return ""
    near = get_close_matches(metric, names, n=1, cutoff=0.8)
    return near[0] if near else ""
