"""Algorithms by name: every module of this package that defines one is found by itself."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from difflib import get_close_matches
from functools import cache
from typing import Any, get_origin

import edgefed.algorithms
from edgefed.algorithms.base import Algorithm
from edgefed.config.layers import Layer
from edgefed.config.recipe import Recipe
from edgefed.config.validate import check_section
from edgefed.errors import UnknownNameError, UsageError

AnyAlgorithm = Algorithm[Any]


@cache
def algorithms() -> dict[str, type[AnyAlgorithm]]:
    """Return every algorithm class by its name, sorted."""
    found: dict[str, type[AnyAlgorithm]] = {}
    for module in pkgutil.iter_modules(edgefed.algorithms.__path__):
        contents = importlib.import_module(f"{edgefed.algorithms.__name__}.{module.name}")
        for _, member in inspect.getmembers(contents, inspect.isclass):
            # Python 3.10 takes dict[str, int] for a class, which issubclass then refuses.
            if get_origin(member) is not None:
                continue
            if issubclass(member, Algorithm) and not inspect.isabstract(member):
                found[member.name] = member
    return dict(sorted(found.items()))


def find(name: str) -> type[AnyAlgorithm]:
    """Return the algorithm of a name.

    Raises:
        UnknownNameError: there is none.
    """
    known = algorithms()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        meant = f"; did you mean '{near[0]}'?" if near else "."
        raise UnknownNameError(
            f"No algorithm '{name}'{meant}", code="algorithm.unknown", hint="edgefed algo list"
        )
    return known[name]


def make(recipe: Recipe, layer: Layer | None = None) -> AnyAlgorithm:
    """Return the recipe's algorithm with its settings checked.

    Raises:
        UnknownNameError: there is no such algorithm.
        RecipeError: one of its settings is unknown or out of range.
    """
    kind = find(recipe.algorithm.name)
    settings = check_section(
        kind.Settings,
        recipe.algorithm.settings(),
        "algorithm",
        layer,
        hint=f"edgefed algo show {recipe.algorithm.name}",
    )
    return kind(settings, recipe)


def check_fleet(algorithm: AnyAlgorithm) -> None:
    """Check that real devices give what an algorithm needs with its settings.

    Raises:
        UsageError: ``run.simulation_only``: it needs what only a simulation has.
    """
    if needed := algorithm.needs_simulation():
        raise UsageError(
            f"{algorithm.name} needs {needed}, which no real fleet gives.",
            code="run.simulation_only",
            hint="edgefed sim run RECIPE",
        )
