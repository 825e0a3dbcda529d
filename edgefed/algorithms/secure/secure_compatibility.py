"""Settings that secure aggregation does not support; a recipe that combines them is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from edgefed.algorithms.averaging.fedavg import AveragingSettings
from edgefed.algorithms.interface.base import Algorithm
from edgefed.algorithms.interface.cohort_sampling import sizes
from edgefed.algorithms.secure.secure_keys import MAX_DEVICES
from edgefed.algorithms.secure.secure_phases import threshold_of
from edgefed.config.recipes.privacy_section import PrivacySection
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import RecipeError


def check_secure_aggregation(recipe: Recipe, algorithm: Algorithm[Any]) -> None:
    """Check that a recipe's updates can be masked, where it requires that.

    Args:
        recipe: the recipe.
        algorithm: its algorithm, without parts.

    Raises:
        RecipeError: ``secure.unfit``: something needs to see single updates, or changes the sum; or
            ``secure.threshold``, ``secure.cohort``.
    """
    if not recipe.secure_aggregation.wanted:
        return
    check_sums(algorithm)
    settings = algorithm.settings
    if isinstance(settings, AveragingSettings) and settings.divergence:
        raise _unfit("algorithm.divergence compares single updates", "set it to false")
    if recipe.wire.uplink != "fp32":
        raise _unfit(
            f"wire.uplink = {recipe.wire.uplink} codes updates, and masked ones are not coded",
            'set wire.uplink = "fp32"; secure_aggregation.grid_bits makes replies smaller',
        )
    _check_other_tables(recipe)
    _check_cohort(recipe)


def check_sums(algorithm: Algorithm[Any]) -> None:
    """Check that an algorithm only sums updates; devices make the same check.

    Raises:
        RecipeError: ``secure.unfit``.
    """
    if not algorithm.sums_deltas:
        raise _unfit(
            f"{algorithm.name} does more with updates than to sum them",
            "choose fedavg or an algorithm that averages one model as it does",
        )


def check_roles(name: str, roles: Iterable[str]) -> None:
    """Check that an answer holds the update and nothing else, as an algorithm declared.

    Raises:
        RecipeError: ``secure.unfit``.
    """
    others = sorted(set(roles) - {"delta"})
    if others:
        why = f"answers of {name} also hold {others[0]}"
        raise _unfit(why, "its author sets sums_deltas = False")


def check_without_privacy(section: PrivacySection) -> None:
    """Check that updates are not noised as well, on a device as on the coordinator.

    Raises:
        RecipeError: ``secure.unfit``.
    """
    if section.wanted:
        raise _unfit(
            f"privacy.mechanism = {section.mechanism} counts what each device releases",
            'set privacy.mechanism = "none"',
        )


def check_label_audit(recipe: Recipe, audit: bool) -> None:
    """Check that a simulation does not audit the disclosure of labels by single updates.

    Raises:
        RecipeError: ``secure.unfit``.
    """
    if audit and recipe.secure_aggregation.wanted:
        raise _unfit("a label audit reads single updates", "run it without the audit")


def _check_other_tables(recipe: Recipe) -> None:
    """Check that no other table needs to see single updates, or to change them."""
    checks = recipe.checks
    if recipe.merging.rule != "mean":
        raise _unfit(
            f"merging.rule = {recipe.merging.rule} compares or changes single updates",
            'set merging.rule = "mean"',
        )
    for name in ("norm_factor", "samples_factor", "announced_factor"):
        if getattr(checks, name) > 0:
            raise _unfit(f"checks.{name} compares single replies", f"set checks.{name} = 0")


def _check_cohort(recipe: Recipe) -> None:
    """Check the sizes of a cohort that the recipe states; others are checked before each round."""
    section, wanted = recipe.secure_aggregation, recipe.rounds.cohort
    if wanted > MAX_DEVICES:
        raise RecipeError(
            f"Secure aggregation is for cohorts of up to {MAX_DEVICES} devices, not {wanted}.",
            code="secure.cohort",
            hint=f"set rounds.cohort = {MAX_DEVICES} or less",
        )
    # Among so many devices, only the recipe limits the cohort
    _, asked = sizes(MAX_DEVICES**2, recipe.rounds)
    if wanted > 1 and (least := threshold_of(section, asked)) > wanted:
        raise RecipeError(
            f"A round asks {asked} devices and waits for {wanted} of them, and {least} are needed"
            " to uncover its sum.",
            code="secure.threshold",
            hint="lower secure_aggregation.threshold, secure_aggregation.colluders or"
            " rounds.over_selection",
        )


def _unfit(why: str, hint: str) -> RecipeError:
    return RecipeError(
        f"Secure aggregation cannot sum these updates: {why}.", code="secure.unfit", hint=hint
    )
