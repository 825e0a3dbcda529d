"""Check whether a recipe's updates may be summed at the gateways of sites."""

from __future__ import annotations

from typing import Any

from edgefed.algorithms.averaging.fedavg import AveragingSettings
from edgefed.algorithms.interface.optional_interfaces import CompleteAlgorithm
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import RecipeError


def check_site_sums(recipe: Recipe, algorithm: CompleteAlgorithm[Any]) -> None:
    """Check that a recipe that forces sums has no need of single updates.

    Raises:
        RecipeError: ``rounds.site_sums``: it has, with the reason.
    """
    why = single_updates_reason(recipe, algorithm)
    if recipe.rounds.site_sums == "always" and why:
        raise RecipeError(
            f"Sums of sites do not go with {why}.",
            code="rounds.site_sums",
            hint='set rounds.site_sums = "auto", with which gateways then pass on every update',
        )


def single_updates_reason(recipe: Recipe, algorithm: CompleteAlgorithm[Any]) -> str:
    """Return why a run needs single updates; empty where the sums of sites are enough."""
    settings, rounds = algorithm.settings, recipe.rounds
    if not (algorithm.sums_deltas and isinstance(settings, AveragingSettings)):
        return f"{algorithm.name}: it does more with updates than to sum them"
    tables = ("labels", "privacy", "secure_aggregation")
    rule = recipe.merging.rule
    reasons = {
        "algorithm.divergence, which compares single updates": settings.divergence,
        f"merging.rule = {rule}, which needs single updates": rule != "mean",
        "[checks], which compare single updates": recipe.checks.compares,
        "buffered rounds, which merge single updates": rounds.buffered,
        "rounds.over_selection: the links would decide which updates come first": (
            rounds.over_selection > 0
        ),
        **{f"the [{name}] table": getattr(recipe, name).wanted for name in tables},
    }
    return next((reason for reason, applies in reasons.items() if applies), "")
