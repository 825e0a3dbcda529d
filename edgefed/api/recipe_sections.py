"""Validate the settings of the algorithm, data set, model and selector that a recipe names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from edgefed.config.loading.validate import validate
from edgefed.config.recipes.recipe import ModelSection, Recipe
from edgefed.config.values.layers import ValueLayer
from edgefed.config.values.nearest import did_you_mean, nearest_name
from edgefed.config.values.problems import BAD_VALUE, Problem
from edgefed.errors import EdgeFedError, PluginError, RecipeError, UnknownNameError
from edgefed.files.user_code import are_classes_allowed, is_own_class


def open_problems(layer: ValueLayer) -> list[Problem]:
    """Return the problems of a recipe's open tables, independent of problems in other tables.

    A table that names a class of a user's own is checked where that class may be imported.

    Args:
        layer: the recipe as it was written.
    """
    checks = {
        "algorithm": algorithm_problems,
        "data": data_problems,
        "model": model_problems,
        "selection": selection_problems,
    }
    written = [name for name in checks if isinstance(layer.values.get(name), Mapping)]
    recipe = _readable({name: dict(layer.values[name]) for name in written})
    readable = [name for name in written if not _names_refused_class(getattr(recipe, name))]
    return [problem for name in readable for problem in checks[name](recipe, layer)]


def _names_refused_class(section: Any) -> bool:
    """Return whether an open table names a class that is not imported here."""
    if are_classes_allowed() or isinstance(section, ModelSection):
        return False
    return any(is_own_class(getattr(section, key, "")) for key in ("name", "partition"))


def _readable(tables: dict[str, dict[str, Any]]) -> Recipe:
    """Return the recipe that open tables make without the keys that no table takes."""
    while True:
        try:
            return Recipe.model_validate(tables)
        except ValidationError as error:
            for table, key in {detail["loc"][:2] for detail in error.errors()}:
                del tables[str(table)][str(key)]


def algorithm_problems(recipe: Recipe, layer: ValueLayer) -> list[Problem]:
    """Return the problems of the algorithm's name and settings, with their places."""
    from edgefed.algorithms.composed.registry import find

    try:
        kind = find(recipe.algorithm.name)
    except UnknownNameError as error:
        origin = layer.nearest(("algorithm", "name"))
        return [Problem(origin, "algorithm.name", error.message, BAD_VALUE)]
    except PluginError as error:
        return [_named_problem(layer, "algorithm", "name", error)]
    return validate(kind.Settings, recipe.algorithm.settings(), layer, ("algorithm",))[1]


def selection_problems(recipe: Recipe, layer: ValueLayer) -> list[Problem]:
    """Return the problems of the selector's name and settings, with their places."""
    from edgefed.algorithms.selection.registry import find_selector

    try:
        kind = find_selector(recipe.selection.name)
    except (PluginError, UnknownNameError) as error:
        return [_named_problem(layer, "selection", "name", error)]
    return validate(kind.Settings, recipe.selection.settings(), layer, ("selection",))[1]


def data_problems(recipe: Recipe, layer: ValueLayer) -> list[Problem]:
    """Return the problems of the data set's name and keys, and of the partition's."""
    from edgefed.data.partitioners.keys import dataset_keys_of
    from edgefed.data.sets.datasets import dataset_names, find_options

    name = recipe.data.name
    problems, usable = _partition_problems(recipe, layer)
    try:
        options = find_options(name)
    except PluginError as error:
        return [_named_problem(layer, "data", "name", error), *problems]
    if options is None:
        known = dataset_names()
        meant = did_you_mean(nearest_name(name, known)) or f"; known: {', '.join(known)}"
        text = f'there is no such data set, got "{name}"{meant}'
        problem = Problem(layer.nearest(("data", "name")), "data.name", text, "recipe.data")
        return [problem, *problems]
    keys = dataset_keys_of(recipe.data, options) if usable else recipe.data.settings()
    return problems + validate(options, keys, layer, ("data",))[1]


def _partition_problems(recipe: Recipe, layer: ValueLayer) -> tuple[list[Problem], bool]:
    """Return the problems of the partition's name and own keys, and whether it can be used."""
    from edgefed.data.partitioners.keys import partition_keys_of, partition_options
    from edgefed.data.partitioners.registry import find_partitioner, partition_names

    name = recipe.data.partition
    try:
        partitioner = find_partitioner(name)
    except PluginError as error:
        return [_named_problem(layer, "data", "partition", error)], False
    if partitioner is None:
        known = partition_names()
        meant = did_you_mean(nearest_name(name, known)) or f"; known: {', '.join(known)}"
        text = f'there is no such partition, got "{name}"{meant}'
        origin = layer.nearest(("data", "partition"))
        return [Problem(origin, "data.partition", text, "recipe.data")], False
    own, keys = partition_options(recipe.data), partition_keys_of(recipe.data)
    return validate(own, keys, layer, ("data",))[1], True


def model_problems(recipe: Recipe, layer: ValueLayer) -> list[Problem]:
    """Return the problems of the model's name and settings; a user's own code is not run."""
    from edgefed.learn.modeling.model_building import NETWORK_PLUGINS, NETWORKS
    from edgefed.learn.modeling.user_models import is_user_model
    from edgefed.learn.networks.torchvision_classifiers import is_torchvision, torchvision_network

    name = recipe.model.name
    if is_user_model(name):
        return []
    try:
        torchvision = torchvision_network(name) if is_torchvision(name) else None
        network = torchvision or NETWORKS.get(name) or NETWORK_PLUGINS.find(name)
    except (PluginError, RecipeError) as error:
        return [_named_problem(layer, "model", "name", error)]
    if network is None:
        known = (*NETWORKS, *NETWORK_PLUGINS.names())
        others = "torchvision:NAME, package.module:factory"
        meant = did_you_mean(nearest_name(name, known)) or f"; known: {', '.join(known)}, {others}"
        text = f'there is no such model, got "{name}"{meant}'
        origin = layer.nearest(("model", "name"))
        return [Problem(origin, "model.name", text, "model.unknown")]
    return validate(network.settings, recipe.model.settings(), layer, ("model",))[1]


def _named_problem(layer: ValueLayer, table: str, key: str, error: EdgeFedError) -> Problem:
    """Return the problem of a name that says something which cannot be used."""
    origin = layer.nearest((table, key))
    return Problem(origin, f"{table}.{key}", error.message, error.code, hint=error.hint)
