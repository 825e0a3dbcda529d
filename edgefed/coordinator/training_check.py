"""Check that an algorithm can train a model as a recipe says, before any device is asked."""

from __future__ import annotations

from typing import Any

from edgefed.algorithms.base import Algorithm
from edgefed.algorithms.carried_state import check_carried_state
from edgefed.config.recipe import Recipe
from edgefed.coordinator.augmentation import check_augmentation
from edgefed.learn.models import Model
from edgefed.learn.objectives.target_adjustment import check_class_weights


def check_training(recipe: Recipe, algorithm: Algorithm[Any], model: Model) -> None:
    """Check augmentation, class weights, the algorithm's demands on the model, a carried state.

    Args:
        recipe: with the augmentation that its data set declares.
        algorithm: the recipe's; it may note what it needs to know of the model.
        model: the recipe's.

    Raises:
        DataError, RecipeError: the run cannot be trained.
    """
    check_augmentation(recipe, model.shape)
    check_class_weights(recipe.training.class_weights, model.classes)
    algorithm.check_model(model)
    check_carried_state(algorithm, model)
