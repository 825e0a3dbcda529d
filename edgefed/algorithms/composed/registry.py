"""Algorithms by name: the modules of this package, plug-ins, and classes of users' own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, get_origin

import edgefed.algorithms
from edgefed.algorithms.averaging.training import check_label_settings, schedule_of
from edgefed.algorithms.composed.buffering_check import check_buffering
from edgefed.algorithms.composed.composition import compose
from edgefed.algorithms.composed.local_work import check_local_work
from edgefed.algorithms.composed.merging_check import check_merging
from edgefed.algorithms.composed.method import Method
from edgefed.algorithms.composed.site_sums_check import check_site_sums
from edgefed.algorithms.interface.base import Algorithm, AlgorithmSettings
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.algorithms.private.private_updates import CoordinatorRandomness, from_operating_system
from edgefed.algorithms.secure.secure_compatibility import check_secure_aggregation
from edgefed.algorithms.selection.registry import check_selection
from edgefed.config.loading.validate import check_section
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.layers import ValueLayer
from edgefed.errors import UnknownNameError, UsageError
from edgefed.files.plugin_failures import plugin_errors
from edgefed.files.plugins import Plugins, check_name
from edgefed.learn.steps.local_optimizers import check_optimizer

AnyAlgorithm = CompleteAlgorithm[Any]


@cache
def built_in() -> dict[str, type[Algorithm[Any]]]:
    """Return the algorithms of this package by name, sorted."""
    classes: dict[str, type[Algorithm[Any]]] = {}
    for module in pkgutil.walk_packages(edgefed.algorithms.__path__, "edgefed.algorithms."):
        contents = importlib.import_module(module.name)
        for _, member in inspect.getmembers(contents, inspect.isclass):
            # Python 3.10 takes dict[str, int] for a class, which issubclass then refuses.
            if get_origin(member) is not None or not issubclass(member, Algorithm):
                continue
            if hasattr(member, "name") and not inspect.isabstract(member):
                classes[member.name] = member
    return dict(sorted(classes.items()))


def _checked(name: str, member: object) -> type[Algorithm[Any]]:
    """Return a package's object as an algorithm of this name.

    Raises:
        ValueError: it is not one.
    """
    if not (inspect.isclass(member) and issubclass(member, Algorithm)):
        raise ValueError("is no subclass of edgefed.extension.Algorithm")
    if inspect.isabstract(member):
        raise ValueError(f"does not define {', '.join(sorted(member.__abstractmethods__))}")
    check_name(name, member)
    if not issubclass(getattr(member, "Settings", object), AlgorithmSettings):
        raise ValueError("has Settings that are no subclass of AlgorithmSettings")
    return member


PLUGINS = Plugins("algorithm", "edgefed.algorithms", built_in, _checked, code="algorithm.plugin")
"""The algorithms of installed packages."""


def algorithms() -> dict[str, type[Algorithm[Any]]]:
    """Return the usable algorithms by name, sorted; those of broken packages are left out."""
    return dict(sorted({**built_in(), **PLUGINS.loaded()}.items()))


def find(name: str) -> type[Algorithm[Any]]:
    """Return the algorithm of a name.

    Raises:
        UnknownNameError: there is none.
        PluginError: ``algorithm.plugin``: a package offers it, which cannot be used.
    """
    if name in built_in():
        return built_in()[name]
    plugin = PLUGINS.find(name)
    if plugin is not None:
        return plugin
    near = get_close_matches(name, [*built_in(), *PLUGINS.names()], n=1)
    meant = f"; did you mean '{near[0]}'?" if near else "."
    raise UnknownNameError(
        f"No algorithm '{name}'{meant}", code="algorithm.unknown", hint="edgefed algo list"
    )


def algorithm_settings(recipe: Recipe, layer: ValueLayer | None = None) -> AlgorithmSettings:
    """Return the settings of the recipe's algorithm, checked, with their defaults.

    Raises:
        UnknownNameError, PluginError: as ``find``.
        RecipeError: one of them is unknown or out of range.
    """
    return check_section(
        find(recipe.algorithm.name).Settings,
        recipe.algorithm.settings(),
        "algorithm",
        layer,
        hint=f"edgefed algo show {recipe.algorithm.name}",
    )


@plugin_errors()
def make(
    recipe: Recipe,
    layer: ValueLayer | None = None,
    randomness: CoordinatorRandomness = from_operating_system,
) -> AnyAlgorithm:
    """Return the recipe's algorithm with its settings checked.

    ``randomness`` is that of the coordinator's privacy noise; tests pass their own.

    Raises:
        UnknownNameError: there is no such algorithm.
        RecipeError: one of its settings is unknown or out of range.
        UsageError: ``train.optimizer``, ``train.labels``: settings of ``[training]`` do not belong
            together; ``merging.*``: the rule of ``[merging]`` does not fit.
        RecipeError: ``secure.unfit``: secure aggregation does not go with the rest; or
            ``rounds.buffered``: buffered rounds do not; or ``rounds.site_sums``: sums of sites do
            not; or ``selection.unfit``: the choice of devices does not; or ``training.seconds``:
            a time budget cannot be kept.
        PluginFailedError: the code of a plug-in fails.
    """
    kind = find(recipe.algorithm.name)
    check_optimizer(schedule_of(recipe.training, 1, recipe.rounds.count))
    check_label_settings(recipe.training)
    settings = algorithm_settings(recipe, layer)
    method = Method.of(recipe, settings)
    algorithm = method.bare(kind, recipe.rounds)
    check_merging(recipe, algorithm)
    check_secure_aggregation(recipe, algorithm)
    composed = compose(algorithm, method, randomness)
    check_buffering(recipe, composed)
    check_site_sums(recipe, composed)
    check_selection(recipe, layer)
    check_local_work(recipe)
    return composed


@plugin_errors()
def make_device_half(task: Mapping[str, Any]) -> AnyAlgorithm:
    """Return the algorithm of a task: the device's half, with nothing left to its own defaults.

    Args:
        task: the fields of its method, as ``Method.task_fields`` returns them.

    Raises:
        UnknownNameError: there is no such algorithm here.
        WireError: as ``Method.read``.
        PluginFailedError: the code of a plug-in fails.
    """
    kind = find(task["algorithm"])
    method = Method.read(task, kind.Settings)
    return compose(method.bare(kind), method)


def check_fleet(algorithm: AnyAlgorithm) -> None:
    """Check that an algorithm with its settings can run on real devices.

    Raises:
        UsageError: ``run.simulation_only``: it needs a simulation.
    """
    if needed := algorithm.needs_simulation():
        raise UsageError(
            f"This recipe with {algorithm.name} needs {needed}, which only a simulation has.",
            code="run.simulation_only",
            hint="edgefed sim run RECIPE",
        )
