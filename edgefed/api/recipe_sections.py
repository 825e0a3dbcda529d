"""Validate the settings of the algorithm, data set and model that a recipe names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from edgefed.config.layers import Layer
from edgefed.config.nearest import did_you_mean, nearest_name
from edgefed.config.problems import BAD_VALUE, Problem
from edgefed.config.recipe import Recipe
from edgefed.config.validate import validate
from edgefed.errors import UnknownNameError


def open_problems(layer: Layer) -> list[Problem]:
    """Return what is wrong with the open tables of a recipe, whatever is wrong with the others.

    Args:
        layer: the recipe as it was written.
    """
    checks = {"algorithm": algorithm_problems, "data": data_problems, "model": model_problems}
    written = [name for name in checks if isinstance(layer.values.get(name), Mapping)]
    recipe = _readable({name: dict(layer.values[name]) for name in written})
    return [problem for name in written for problem in checks[name](recipe, layer)]


def _readable(tables: dict[str, dict[str, Any]]) -> Recipe:
    """Return the recipe that open tables make without the keys that no table takes."""
    while True:
        try:
            return Recipe.model_validate(tables)
        except ValidationError as error:
            for table, key in {detail["loc"][:2] for detail in error.errors()}:
                del tables[str(table)][str(key)]


def algorithm_problems(recipe: Recipe, layer: Layer) -> list[Problem]:
    """Return what is wrong with the algorithm's name and settings, and where that was written."""
    from edgefed.algorithms.registry import find

    try:
        kind = find(recipe.algorithm.name)
    except UnknownNameError as error:
        origin = layer.nearest(("algorithm", "name"))
        return [Problem(origin, "algorithm.name", error.message, BAD_VALUE)]
    return validate(kind.Settings, recipe.algorithm.settings(), layer, ("algorithm",))[1]


def data_problems(recipe: Recipe, layer: Layer) -> list[Problem]:
    """Return what is wrong with the data set's name and keys."""
    from edgefed.data.datasets import dataset_keys

    known, name = dataset_keys(), recipe.data.name
    problems = _partition_problems(recipe, layer)
    if name not in known:
        meant = did_you_mean(nearest_name(name, known)) or f"; known: {', '.join(known)}"
        told = f'there is no such data set, got "{name}"{meant}'
        found = Problem(layer.nearest(("data", "name")), "data.name", told, "recipe.data")
        return [found, *problems]
    return problems + validate(known[name], recipe.data.settings(), layer, ("data",))[1]


def _partition_problems(recipe: Recipe, layer: Layer) -> list[Problem]:
    """Return what is wrong with the name of the partition."""
    from edgefed.data.partition import PARTITIONS

    name = recipe.data.partition
    if name in PARTITIONS:
        return []
    meant = did_you_mean(nearest_name(name, PARTITIONS)) or f"; known: {', '.join(PARTITIONS)}"
    told = f'there is no such partition, got "{name}"{meant}'
    origin = layer.nearest(("data", "partition"))
    return [Problem(origin, "data.partition", told, "recipe.data")]


def model_problems(recipe: Recipe, layer: Layer) -> list[Problem]:
    """Return what is wrong with the model's name and settings; code of a user's own is not run."""
    from edgefed.learn.models import NETWORKS
    from edgefed.learn.user_models import is_user_model

    name = recipe.model.name
    if is_user_model(name):
        return []
    if name not in NETWORKS:
        meant = did_you_mean(nearest_name(name, NETWORKS)) or f"; known: {', '.join(NETWORKS)}"
        told = f'there is no such model, got "{name}"{meant}'
        origin = layer.nearest(("model", "name"))
        return [Problem(origin, "model.name", told, "model.unknown")]
    return validate(NETWORKS[name].settings, recipe.model.settings(), layer, ("model",))[1]
