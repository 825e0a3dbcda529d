"""Check that a recipe's ``[merging]`` table fits its algorithm, its cohort and the fleet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgefed.algorithms.interface.base import Algorithm
from edgefed.algorithms.secure.secure_phases import fewest_devices
from edgefed.config.recipes.recipe import Recipe
from edgefed.errors import UsageError


@dataclass(frozen=True)
class LeastDevices:
    """The least number of devices with which a run begins.

    Attributes:
        count: with samples, that fit the run.
        because: the reason why it exceeds ``rounds.min_devices``, as a sentence; empty otherwise.
    """

    count: int
    because: str = ""

    def shortage(self, there: int) -> str:
        """Return in words that there are too few devices, and why; empty if they suffice."""
        if there >= self.count or not self.because:
            return ""
        return f"{self.because} {there} of {self.count} devices are there."


def least_devices(recipe: Recipe) -> LeastDevices:
    """Return how many devices a run needs for its first round to reach its quorum."""
    least, merging = LeastDevices(recipe.rounds.min_devices), recipe.merging
    if merging.least_answers > least.count:
        reason = f"merging.malicious = {merging.malicious} needs 2f + 3 = {merging.least_answers}"
        because = f'merging.rule = "{merging.rule}" with {reason} answers a round.'
        least = LeastDevices(merging.least_answers, because)
    if recipe.rounds.buffer > least.count:
        buffer = recipe.rounds.buffer
        because = f"rounds.buffer is {buffer}, and a buffer takes one answer of each device."
        least = LeastDevices(buffer, because)
    section = recipe.secure_aggregation
    if section.wanted:
        needed = fewest_devices(section)
        if needed > least.count:
            least = LeastDevices(needed, f"Secure aggregation needs {needed} devices a round.")
    return least


def check_merging(recipe: Recipe, algorithm: Algorithm[Any]) -> None:
    """Check the table as far as possible without devices.

    Raises:
        UsageError: ``merging.algorithm``: the algorithm does not average updates;
            ``merging.divergence``: it measures the updates that the rule replaces;
            ``merging.cohort``: rounds wait for fewer answers than the rule needs;
            ``merging.privacy``: the merge would depend on single updates by more than central
            differential privacy accounts for.
    """
    section = recipe.merging
    _check_privacy(recipe)
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


def _check_privacy(recipe: Recipe) -> None:
    """Refuse rules that compare updates where the noise is computed for a plain sum of them."""
    if recipe.privacy.mechanism != "central":
        return
    if recipe.merging.rule == "mean" and not recipe.checks.compares:
        return
    key = "[checks]" if recipe.checks.compares else "merging.rule"
    raise UsageError(
        f'{key} and privacy.mechanism = "central" do not go together: the noise covers what one'
        " update adds to a sum, and not what it changes by comparison.",
        code="merging.privacy",
        hint='leave out one of the two, or set privacy.mechanism = "local"',
    )
