"""Selectors by name, those of this package and plug-ins, and how one is made from a recipe."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Any

from edgefed.algorithms.selection.base import Selector, SelectorSettings
from edgefed.algorithms.selection.oort import Oort
from edgefed.algorithms.selection.power_of_choice import PowerOfChoice
from edgefed.algorithms.selection.simple_selectors import (
    RandomSelector,
    RoundRobinSelector,
    SamplesSelector,
)
from edgefed.config.loading.validate import check_section
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.recipes.selection_section import SelectionSection
from edgefed.config.values.layers import ValueLayer
from edgefed.errors import RecipeError, UnknownNameError
from edgefed.files.plugins import Plugins, check_name

SELECTORS: dict[str, type[Selector[Any]]] = {
    kind.name: kind
    for kind in (RandomSelector, SamplesSelector, RoundRobinSelector, PowerOfChoice, Oort)
}
"""The selectors of this package by name."""


def _checked(name: str, member: object) -> type[Selector[Any]]:
    """Return a package's object as a selector of this name.

    Raises:
        ValueError: it is not one.
    """
    if not (inspect.isclass(member) and issubclass(member, Selector)):
        raise ValueError("is no subclass of edgefed.extension.Selector")
    if inspect.isabstract(member):
        raise ValueError(f"does not define {', '.join(sorted(member.__abstractmethods__))}")
    if not issubclass(getattr(member, "Settings", object), SelectorSettings):
        raise ValueError("has Settings that are no subclass of SelectorSettings")
    check_name(name, member)
    return member


SELECTOR_PLUGINS = Plugins(
    "selector", "edgefed.selectors", lambda: SELECTORS, _checked, code="selection.plugin"
)
"""The selectors of installed packages."""


def find_selector(name: str) -> type[Selector[Any]]:
    """Return the selector of a name.

    Raises:
        UnknownNameError: there is none.
        PluginError: ``selection.plugin``: a package offers it, which cannot be used.
    """
    kind = SELECTORS.get(name) or SELECTOR_PLUGINS.find(name)
    if kind is not None:
        return kind
    names = [*SELECTORS, *SELECTOR_PLUGINS.names()]
    near = get_close_matches(name, names, n=1)
    meant = f"; did you mean '{near[0]}'?" if near else "."
    raise UnknownNameError(
        f"No selector '{name}'{meant}", code="selection.unknown", hint=f"one of {', '.join(names)}"
    )


def make_selector(section: SelectionSection, layer: ValueLayer | None = None) -> Selector[Any]:
    """Return a recipe's selector with its settings checked.

    Raises:
        UnknownNameError, PluginError: as ``find_selector``.
        RecipeError: one of its settings is unknown or out of range.
    """
    kind = find_selector(section.name)
    hint = "docs/selection.md lists the settings of each selector"
    return kind(check_section(kind.Settings, section.settings(), "selection", layer, hint=hint))


def check_selection(recipe: Recipe, layer: ValueLayer | None = None) -> None:
    """Check that a recipe's selector fits the rest of the recipe.

    Raises:
        UnknownNameError, PluginError, RecipeError: as ``make_selector``.
        RecipeError: ``selection.unfit``.
    """
    selector, section, rounds = (
        make_selector(recipe.selection, layer),
        recipe.selection,
        recipe.rounds,
    )
    if not section.wanted:
        return
    private = recipe.privacy.wanted or recipe.secure_aggregation.wanted
    limit = "concurrency" if rounds.buffered else "cohort"
    if not getattr(rounds, limit):
        why = f"rounds.{limit} = 0, with which all devices are asked"
        way = f"set rounds.{limit} to the number of devices to choose"
    elif recipe.privacy.population:
        why = "privacy.population: epsilon would be counted for a random cohort"
        way = "set privacy.population = 0, so that epsilon is counted without sampling"
    elif selector.needs_loss and private:
        table = "privacy" if recipe.privacy.wanted else "secure_aggregation"
        why = f"the [{table}] table: devices then do not send their training loss"
        way = 'set selection.name = "round-robin"'
    else:
        return
    named = f"selection.name = {section.name}" if section.name != "random" else "selection.rest"
    raise RecipeError(
        f"{named} does not go with {why}.",
        code="selection.unfit",
        hint=f"{way}, or leave the [selection] table out",
    )
