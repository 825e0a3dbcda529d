"""Check that a recipe's ``[merging]`` table fits its algorithm and its cohort."""

from __future__ import annotations

from typing import Any

from edgefed.algorithms.base import Algorithm
from edgefed.config.recipe import Recipe
from edgefed.errors import UsageError


def check_merging(recipe: Recipe, algorithm: Algorithm[Any]) -> None:
    """Check what can be known before there are devices.

    Raises:
        UsageError: ``merging.algorithm``: the algorithm does not average updates;
            ``merging.divergence``: it measures what the rule replaces; ``merging.cohort``: rounds
            wait for fewer answers than the rule needs.
    """
    section = recipe.merging
    if section.rule == "mean":
        return
    if not algorithm.averages_updates:
        raise UsageError(
            f"{algorithm.name} does not average updates, so merging.rule = {section.rule!r} cannot"
            " take the place of the mean.",
            code="merging.algorithm",
            hint='set merging.rule = "mean", or choose fedavg or another algorithm that averages',
        )
    if section.replaces and getattr(algorithm.settings, "divergence", False):
        raise UsageError(
            "algorithm.divergence compares updates, of which merging.rule ="
            f" {section.rule!r} leaves one.",
            code="merging.divergence",
            hint="set algorithm.divergence = false",
        )
    if 0 < recipe.rounds.cohort < section.least_answers:
        raise UsageError(
            f"{section.rule} with merging.malicious = {section.malicious} needs"
            f" {section.least_answers} answers; rounds.cohort is {recipe.rounds.cohort}.",
            code="merging.cohort",
            hint=f"set rounds.cohort to at least {section.least_answers}",
        )
