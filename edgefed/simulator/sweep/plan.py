"""Expand a sweep file to its cases; all recipes are checked before the first run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from edgefed.algorithms.composed.evaluation_place import evaluation_place
from edgefed.algorithms.composed.recipe_versions import recipe_versions
from edgefed.algorithms.composed.registry import algorithm_settings, make
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.fleet.settings_files import Surroundings
from edgefed.config.loading.load import Loaded, load_recipe
from edgefed.config.recipes.recipe import Recipe
from edgefed.config.values.problems import Problem, dotted, problems_error
from edgefed.coordinator.rounds.training_check import score_problem
from edgefed.errors import EdgeFedError, PluginFailedError, UsageError
from edgefed.simulator.sweep.choice import ChooseSection, choice_problem
from edgefed.simulator.sweep.file import Variant, Written
from edgefed.simulator.sweep.report import RUN_NUMBERS, USUAL_NUMBERS, Report, default_report

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
        report: the metrics of the tables.
        baseline: name of the case with which the others are compared; empty for the first. Or
            settings: each case is compared with the one that has them and is otherwise equal.
        choose: how the best cases are chosen; None to choose none.
    """

    cases: tuple[SweepCase, ...]
    seeds: tuple[int, ...]
    report: Report = field(default_factory=default_report)
    baseline: str | Mapping[str, Any] = ""
    choose: ChooseSection | None = None

    def references(self) -> dict[str, str]:
        """Return the case with which each case is compared; one that has none is left out."""
        if isinstance(self.baseline, str):
            name = self.baseline or self.cases[0].name
            return {case.name: name for case in self.cases if case.name != name}
        by_settings = [(case.settings, case.name) for case in self.cases]
        digests = {}
        for case in self.cases:
            wanted = {**case.settings, **self.baseline}
            name = next((name for settings, name in by_settings if settings == wanted), case.name)
            if name != case.name:
                digests[case.name] = name
        return digests

    @property
    def target(self) -> float | None:
        """The accuracy whose round the table states; None for none."""
        targets = (metric.target for metric in self.report if metric.name == "accuracy")
        return next(targets, None)

    def trials(self) -> Iterator[Trial]:
        """Return the runs: all cases with the first seed, then all with the second, and so on.

        An unfinished sweep therefore already compares all cases.
        """
        return iter(self._trials)

    @cached_property
    def _trials(self) -> tuple[Trial, ...]:
        recipes = (
            (case, seed, case.recipe.model_copy(update={"seed": seed}))
            for seed in self.seeds
            for case in self.cases
        )
        return tuple(Trial(*described, trial_digest(described[-1])) for described in recipes)


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
        RecipeError: a case's recipe is wrong, or no case can have a metric of the report.
        UsageError: ``sets`` has a key that the cases vary, or ``seeds`` has one twice.
    """
    if twice := [seed for seed in seeds if seeds.count(seed) > 1]:
        raise UsageError(f"The seed {twice[0]} is there twice.", hint="write each seed once")
    varied = {key for variant in written.variants for key in variant.settings}
    for key in sets or {}:
        if key in varied:
            raise UsageError(
                f"--set {key}: the sweep file sets this key.", hint="change it in the sweep file"
            )
    cases = tuple(_case(variant, written, around, check, sets) for variant in written.variants)
    _check_metrics(written, [case.recipe for case in cases])
    return Plan(
        cases, tuple(seeds) or written.seeds, written.report, written.baseline, written.choose
    )


def _check_metrics(written: Written, recipes: Sequence[Recipe]) -> None:
    """Check, as far as the recipes show it, that runs will have the metrics and can choose.

    Raises:
        RecipeError: no run will have a metric, or the choice would not be apart from the test.
    """
    if written.report == default_report(written.report[0].target) and written.choose is None:
        return
    made = [(recipe, algorithm) for recipe in recipes if (algorithm := _made(recipe)) is not None]
    problems = []
    for number, metric in enumerate(written.report):
        if metric.name in RUN_NUMBERS:
            continue
        reasons = [score_problem(metric.name, *given, others=USUAL_NUMBERS) for given in made]
        if reasons and all(reasons):
            place = ("report", number)
            text = f"no run has '{metric.name}': {reasons[0]}"
            problems.append(Problem(written.layer.nearest(place), dotted(place), text))
    if written.choose is not None:
        places = [evaluation_place(*given) for given in made]
        if text := choice_problem(written.choose, written.report, recipes, places):
            problems.append(Problem(written.layer.nearest(("choose",)), "choose", text))
    if problems:
        raise problems_error(problems)


def _made(recipe: Recipe) -> CompleteAlgorithm[Any] | None:
    """Return a recipe's algorithm; None if a plug-in's fails, of which its runs tell."""
    try:
        return make(recipe)
    except EdgeFedError:
        return None


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

    The recipe's name, the number of worker processes, and the grace for lost devices and the sums
    of sites, which a simulation does not have, are left out, and so are the tables and keys that
    the recipe does not use. The algorithm's settings count with their defaults, so that a changed
    default causes a new run. So do the sources of plug-ins and of users' own modules, if the recipe
    uses any.

    Raises:
        StorageError: ``source.unreadable``: these sources are not known.
    """
    values = recipe.model_dump(
        mode="json",
        exclude={
            "name": True,
            "rollout": True,
            "simulation": {"workers"},
            "rounds": {"lost_grace", "site_sums"},
        },
    )
    if recipe.training.loss == "cross_entropy":
        del values["training"]["loss"]  # spelt out or not, it is the same result
    if not recipe.evaluation.validation_share:
        del values["evaluation"]["validation_share"]
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
