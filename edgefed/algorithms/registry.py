"""Algorithms by name: the modules of this package, and plug-ins."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, get_origin

import edgefed.algorithms
from edgefed.algorithms.base import Algorithm
from edgefed.algorithms.complete_sections import complete_section
from edgefed.algorithms.composition import NO_LABELS, NOT_SECURE, NOTHING_PERSONAL, compose
from edgefed.algorithms.merging_check import check_merging
from edgefed.algorithms.private_updates import CoordinatorRandomness, from_operating_system
from edgefed.algorithms.secure_compatibility import check_secure_aggregation
from edgefed.algorithms.training import check_label_settings, schedule_of
from edgefed.config.images_section import NO_IMAGES, ImagesSection
from edgefed.config.layers import Layer
from edgefed.config.privacy_section import NO_PRIVACY, PrivacySection
from edgefed.config.recipe import LabelsSection, PersonalSection, Recipe
from edgefed.config.secure_aggregation_section import SecureAggregationSection
from edgefed.config.training_section import TrainingSection
from edgefed.config.validate import check_section
from edgefed.errors import UnknownNameError, UsageError
from edgefed.learn.local_optimizers import check_optimizer
from edgefed.plugins import Plugins

AnyAlgorithm = Algorithm[Any]


@cache
def built_in() -> dict[str, type[AnyAlgorithm]]:
    """Return the algorithms of this package by name, sorted."""
    found: dict[str, type[AnyAlgorithm]] = {}
    for module in pkgutil.iter_modules(edgefed.algorithms.__path__):
        contents = importlib.import_module(f"{edgefed.algorithms.__name__}.{module.name}")
        for _, member in inspect.getmembers(contents, inspect.isclass):
            # Python 3.10 takes dict[str, int] for a class, which issubclass then refuses.
            if get_origin(member) is not None or not issubclass(member, Algorithm):
                continue
            if hasattr(member, "name") and not inspect.isabstract(member):
                found[member.name] = member
    return dict(sorted(found.items()))


def _checked(name: str, member: object) -> type[AnyAlgorithm]:
    """Return what a package offers as an algorithm of this name.

    Raises:
        ValueError: it is none.
    """
    if not (inspect.isclass(member) and issubclass(member, Algorithm)):
        raise ValueError("is no subclass of edgefed.extension.Algorithm")
    if inspect.isabstract(member):
        raise ValueError(f"does not define {', '.join(sorted(member.__abstractmethods__))}")
    if getattr(member, "name", "") != name:
        raise ValueError(f"has the name '{getattr(member, 'name', '')}'")
    return member


PLUGINS = Plugins("algorithm", "edgefed.algorithms", built_in, _checked, code="algorithm.plugin")
"""The algorithms of installed packages."""


def algorithms() -> dict[str, type[AnyAlgorithm]]:
    """Return every algorithm that can be used by its name, sorted; a broken package's is not."""
    return dict(sorted({**built_in(), **PLUGINS.loaded()}.items()))


def find(name: str) -> type[AnyAlgorithm]:
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


def make(
    recipe: Recipe,
    layer: Layer | None = None,
    randomness: CoordinatorRandomness = from_operating_system,
) -> AnyAlgorithm:
    """Return the recipe's algorithm with its settings checked.

    ``randomness`` is that of the coordinator's privacy noise; tests pass their own.

    Raises:
        UnknownNameError: there is no such algorithm.
        RecipeError: one of its settings is unknown or out of range.
        UsageError: ``train.optimizer``, ``train.labels``: settings of ``[training]`` do not belong
            together; ``merging.*``: the rule of ``[merging]`` does not fit.
        RecipeError: ``secure.unfit``: secure aggregation does not go with the rest.
    """
    kind = find(recipe.algorithm.name)
    check_optimizer(schedule_of(recipe.training, 1, recipe.rounds.count))
    check_label_settings(recipe.training)
    settings = check_section(
        kind.Settings,
        recipe.algorithm.settings(),
        "algorithm",
        layer,
        hint=f"edgefed algo show {recipe.algorithm.name}",
    )
    algorithm = kind(settings, recipe.training, recipe.rounds, recipe.images)
    check_merging(recipe, algorithm)
    check_secure_aggregation(recipe, algorithm)
    return compose(
        algorithm,
        recipe.labels,
        recipe.personal,
        recipe.privacy,
        randomness,
        recipe.secure_aggregation,
    )


def make_device_half(
    name: str,
    settings: Mapping[str, Any],
    training: Mapping[str, Any],
    labels: Mapping[str, Any] | None = None,
    personal: Mapping[str, Any] | None = None,
    images: Mapping[str, Any] | None = None,
    privacy: Mapping[str, Any] | None = None,
    secure_aggregation: Mapping[str, Any] | None = None,
) -> AnyAlgorithm:
    """Return the algorithm of a task: the device's half, with nothing left to its own defaults.

    Args:
        name: of the algorithm.
        settings: every one of the algorithm's settings.
        training: every key of the recipe's ``[training]`` table.
        labels: every key of its ``[labels]`` table; None or empty for no supplements.
        personal: every key of its ``[personal]`` table; None or empty for no personal weights.
        images: every key of its ``[images]`` table; None or empty for a table that says nothing.
        privacy: every key of its ``[privacy]`` table, with its noise multiplier; None or empty for
            none.
        secure_aggregation: every key of its ``[secure_aggregation]`` table; None or empty where
            updates are not masked.

    Raises:
        UnknownNameError: there is no such algorithm here.
        WireError: ``wire.incomplete``: a value is missing, which this release would fill in with a
            default of its own; or ``wire.malformed``: one is unknown or out of range.
    """
    kind = find(name)
    own = complete_section(kind.Settings, settings, f"algorithm '{name}'")
    half = kind(
        own,
        complete_section(TrainingSection, training, "training"),
        images=complete_section(ImagesSection, images, "images") if images else NO_IMAGES,
    )
    return compose(
        half,
        complete_section(LabelsSection, labels, "labels") if labels else NO_LABELS,
        complete_section(PersonalSection, personal, "personal") if personal else NOTHING_PERSONAL,
        complete_section(PrivacySection, privacy, "privacy") if privacy else NO_PRIVACY,
        secure=complete_section(SecureAggregationSection, secure_aggregation, "secure_aggregation")
        if secure_aggregation
        else NOT_SECURE,
    )


def check_fleet(algorithm: AnyAlgorithm) -> None:
    """Check that real devices give what an algorithm needs with its settings.

    Raises:
        UsageError: ``run.simulation_only``: it needs what only a simulation has.
    """
    if needed := algorithm.needs_simulation():
        raise UsageError(
            f"This recipe with {algorithm.name} needs {needed}, which only a simulation has.",
            code="run.simulation_only",
            hint="edgefed sim run RECIPE",
        )
