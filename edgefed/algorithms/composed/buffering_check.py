"""Check that a recipe's rounds can be buffers of answers to questions of different rounds."""

from __future__ import annotations

from typing import Any

from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import RecipeError


def check_buffering(recipe: Recipe, algorithm: CompleteAlgorithm[Any]) -> None:
    """Check that a method with all its additions may merge late answers, where rounds are buffered.

    Raises:
        RecipeError: ``rounds.buffered``: it may not, with the reason.
    """
    if not recipe.rounds.buffered:
        return
    merging, buffer = recipe.merging, recipe.rounds.buffer
    if recipe.secure_aggregation.wanted:
        why = "secure aggregation: masks cancel only among devices that are asked together"
        way = "leave the [secure_aggregation] table out"
    elif recipe.labels.wanted:
        why = "the [labels] table: needs and offers of labels belong to one round"
        way = "leave the [labels] table out"
    elif recipe.privacy.population:
        why = "privacy.population: devices that are asked whenever they are free are no sample"
        way = "set privacy.population = 0, so that epsilon is counted without sampling"
    elif not algorithm.merges_late:
        why = f"{algorithm.name}: {algorithm.late_problem}"
        way = "choose fedavg, fedprox, fedopt or fedmix"
    elif merging.least_answers > buffer:
        why = f"merging.rule = {merging.rule}, which needs {merging.least_answers} answers"
        way = f"set rounds.buffer, which is {buffer}, to at least {merging.least_answers}"
    else:
        return
    raise RecipeError(
        f"Buffered rounds do not go with {why}.",
        code="rounds.buffered",
        hint=f'{way}, or set rounds.mode = "synchronous"',
    )
