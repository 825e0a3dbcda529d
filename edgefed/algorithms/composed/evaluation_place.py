"""The place of a run's tests, and the samples that simulated devices hold out for them."""

from __future__ import annotations

from typing import Any

from edgefed.algorithms.interface.optional_interfaces import DeviceTests
from edgefed.config.recipes.recipe import EvaluationPlace, Recipe

HOLDOUT = 0.2
"""Fraction of its samples that a virtual device holds out, where evaluation is on devices."""


def evaluation_place(recipe: Recipe, algorithm: DeviceTests[Any]) -> EvaluationPlace:
    """Return where a run's result is tested."""
    return recipe.evaluation.on or algorithm.evaluation_place


def holdout_of(recipe: Recipe, algorithm: DeviceTests[Any]) -> float:
    """Return the fraction of its samples that each virtual device holds out."""
    if recipe.simulation.holdout is not None:
        return recipe.simulation.holdout
    return 0.0 if evaluation_place(recipe, algorithm) == "coordinator" else HOLDOUT
