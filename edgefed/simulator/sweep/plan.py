"""Expand a sweep file to its cases; all recipes are checked before the first run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgefed.algorithms.composed.recipe_versions import recipe_versions
from edgefed.algorithms.composed.registry import algorithm_settings
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import Loaded, load_recipe
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import PluginFailedError, UsageError
from edgefed.simulator.sweep.file import Variant, Written

Check = Callable[[Loaded[Recipe]], Recipe]
"""Checks a recipe to the last key, and returns it as it is to be run."""


@dataclass(frozen=True)
class SweepCase:
    """One setting of a sweep.

    Attributes:
        settings: the recipe keys that make it, with their values.
        recipe: the checked recipe; its seed is not the case's.
    """

    name: str
    settings: Mapping[str, Any]
    recipe: Recipe


@dataclass(frozen=True)
class Trial:
    """One run of a sweep: a case with a seed.

    Attributes:
        digest: names its result; equal if all inputs of the result are equal.
    """

    case: SweepCase
    seed: int
    recipe: Recipe
    digest: str


@dataclass(frozen=True)
class Plan:
    """The runs of a sweep.

    Attributes:
        target: the accuracy whose round the table states; None for none.
    """

    cases: tuple[SweepCase, ...]
    seeds: tuple[int, ...]
    target: float | None

    def trials(self) -> Iterator[Trial]:
        """Yield the runs: all cases with the first seed, then all with the second, and so on.

        An unfinished sweep therefore already compares all cases.
        """
        for seed in self.seeds:
            for case in self.cases:
                recipe = case.recipe.model_copy(update={"seed": seed})
                yield Trial(case, seed, recipe, trial_digest(recipe))


def make_plan(
    written: Written,
    around: Surroundings,
    check: Check,
    *,
    sets: Mapping[str, str] | None = None,
    seeds: Sequence[int] = (),
) -> Plan:
    """Return the plan of a sweep.

    Args:
        written: the sweep file.
        around: environment and settings files, which count as for any recipe.
        check: checks each recipe.
        sets: values of ``--set``, for every case.
        seeds: in place of the file's.

    Raises:
        RecipeError: a case's recipe is wrong.
        UsageError: ``sets`` has a key that the cases vary.
    """
    varied = {key for variant in written.variants for key in variant.settings}
    for key in sets or {}:
        if key in varied:
            raise UsageError(
                f"--set {key}: the sweep file sets this key.", hint="change it in the sweep file"
            )
    cases = tuple(_case(variant, written, around, check, sets) for variant in written.variants)
    return Plan(cases, tuple(dict.fromkeys(seeds)) or written.seeds, written.target)


def _case(
    variant: Variant,
    written: Written,
    around: Surroundings,
    check: Check,
    sets: Mapping[str, str] | None,
) -> SweepCase:
    loaded = load_recipe(written.recipe, around, sets=sets, over=variant.layer)
    try:
        recipe = check(loaded)
    except PluginFailedError:  # it fails again in the case's runs, and the others go on
        recipe = loaded.value
    return SweepCase(variant.name, variant.settings, recipe)


def trial_digest(recipe: Recipe) -> str:
    """Return the name of a recipe's result: a digest over all that a result depends on.

    The recipe's name, the number of worker processes and the grace for lost devices, which a
    simulation does not have, are left out, and so are the tables and keys that the recipe does not
    use. The algorithm's settings count with their defaults, so that a changed default causes a new
    run. So do the sources of plug-ins and of users' own modules, if the recipe uses any.

    Raises:
        StorageError: ``source.unreadable``: these sources are not known.
    """
    values = recipe.model_dump(
        mode="json",
        exclude={"name": True, "simulation": {"workers"}, "rounds": {"lost_grace"}},
    )
    if recipe.training.loss == "cross_entropy":
        del values["training"]["loss"]  # spelt out or not, it is the same result
    for table in ("labels", "selection", "speeds"):
        if not getattr(recipe, table).wanted:
            del values[table]
    if not recipe.training.varies:
        del values["training"]["least_epochs"], values["training"]["seconds"]
    settings = algorithm_settings(recipe).model_dump(mode="json")
    sources = recipe_versions(recipe, readable=True).sources
    code = [[source.name, source.digest] for source in sources]
    text = json.dumps([values, settings, *code], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:24]
