"""The plan of a recipe's ``[privacy]`` table: its noise, and the epsilon of the whole run.

With ``central``, every merged round is one release of the noisy sum. With ``local``, every answer
of a device is one; the plan is for a device that answers in all rounds. Rounds that are repeated
after a missed quorum release nothing with ``central``, because their merge is discarded; with
``local`` they do, and are counted when they occur.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from edgefed.algorithms.interface.cohort_sampling import sizes
from edgefed.config.recipes.privacy_section import PrivacySection
from edgefed.config.recipes.recipe import Recipe, RoundsSection
from edgefed.errors import RecipeError
from edgefed.sharing.update_accounting import (
    Releases,
    epsilon_of,
    least_multiplier,
    most_rounds,
)

NEIGHBOURS = "replace-one device"
"""Which fleets epsilon compares: those that differ in all data of one device."""


@dataclass(frozen=True)
class PrivacyPlan:
    """The privacy of a run as it is planned.

    Attributes:
        section: the recipe's table with its noise multiplier filled in.
        epsilon: of all rounds together.
        rounds: their number.
        sampled, population: as in ``Releases``.
    """

    section: PrivacySection
    epsilon: float
    rounds: int
    sampled: int
    population: int

    @property
    def multiplier(self) -> float:
        """The noise multiplier."""
        return multiplier_of(self.section)

    def as_json(self) -> dict[str, object]:
        """Return the plan as commands print it."""
        return {
            "mechanism": self.section.mechanism,
            "noise_multiplier": self.multiplier,
            "clip": self.section.clip,
            "adaptive": self.section.adaptive,
            "rounds": self.rounds,
            "epsilon": self.epsilon,
            "delta": self.section.delta,
            "budget": self.section.epsilon,
            "neighbours": NEIGHBOURS,
            "sampled": self.sampled if self.population > self.sampled else None,
            "population": self.population if self.population > self.sampled else None,
        }


def multiplier_of(section: PrivacySection) -> float:
    """Return the noise multiplier of a section that a plan has completed."""
    if section.noise_multiplier is None:
        raise RuntimeError("privacy_plan fills in the noise multiplier; call it first.")
    return section.noise_multiplier


def check_privacy(recipe: Recipe) -> None:
    """Check that a recipe keeps its privacy budget, before a run is created.

    Raises:
        RecipeError: ``privacy.budget``, ``privacy.count_noise``, ``privacy.algorithm``.
    """
    if not recipe.privacy.wanted:
        return
    if recipe.privacy.mechanism == "central" and recipe.merging.rule != "mean":
        raise RecipeError(
            "The [privacy] table does not cover this recipe: merging.rule ="
            f' "{recipe.merging.rule}" compares updates without noise.',
            code="privacy.algorithm",
            hint='set merging.rule = "mean", or privacy.mechanism = "local"',
        )
    privacy_plan(recipe.privacy, recipe.rounds)


@lru_cache(maxsize=256)
def privacy_plan(section: PrivacySection, rounds: RoundsSection) -> PrivacyPlan:
    """Return the plan of a recipe with privacy.

    Raises:
        RecipeError: ``privacy.budget``: the rounds cost more than ``privacy.epsilon``;
            ``privacy.count_noise``: the noise on the count leaves none for the sum.
    """
    sampled, population = _cohort(section, rounds)

    def cost(multiplier: float, count: int = rounds.count) -> float:
        return epsilon_of([Releases(count, multiplier, sampled, population)], section.delta)

    budget, multiplier = section.epsilon, section.noise_multiplier
    if budget is not None:
        if multiplier is None:
            multiplier = least_multiplier(budget, cost)
        if multiplier is None or cost(multiplier) > budget:
            least = least_multiplier(budget, cost)  # takes seconds where cohorts are sampled
            raise _over(budget, section, rounds, least, sampled, population)
    assert multiplier is not None  # the table has one of the two
    filled = section.model_copy(update={"noise_multiplier": multiplier})
    if filled.adaptive:
        sum_multiplier(filled, rounds)
    return PrivacyPlan(filled, cost(multiplier), rounds.count, sampled, population)


def count_deviation(section: PrivacySection, rounds: RoundsSection) -> float:
    """Return the standard deviation of the noise on the count of updates within the norm."""
    if section.count_noise is not None:
        return section.count_noise
    return max(rounds.cohort / 20, multiplier_of(section))


def sum_multiplier(section: PrivacySection, rounds: RoundsSection) -> float:
    """Return z of the sum; with adaptive clipping, more than the noise multiplier of both.

    The sum and the count are one Gaussian mechanism of multiplier z together if (Andrew et al.
    2021, theorem 1)

        z_sum^-2 + (2 σ_count)^-2 = z^-2

    Raises:
        RecipeError: ``privacy.count_noise``: the count alone costs more.
    """
    multiplier = multiplier_of(section)
    if not section.adaptive:
        return multiplier
    rest = multiplier**-2 - (2 * count_deviation(section, rounds)) ** -2
    if rest < 1e-6 * multiplier**-2 or rest**-0.5 > 1000:
        raise RecipeError(
            "With adaptive clipping, the noise on the count of updates leaves none for the sum.",
            code="privacy.count_noise",
            hint=f"set privacy.count_noise to at least {multiplier:.4g}, or leave it out",
        )
    # One unit in the last place on the safe side of the root's rounding.
    return math.nextafter(float(rest**-0.5), math.inf)


def _cohort(section: PrivacySection, rounds: RoundsSection) -> tuple[int, int]:
    """Return the sizes of a cohort and of its secret population; 1 and 1 for all devices."""
    if not section.population:
        return 1, 1
    return sizes(section.population, rounds)[1], section.population


def _over(
    budget: float,
    section: PrivacySection,
    rounds: RoundsSection,
    least: float | None,
    sampled: int,
    population: int,
) -> RecipeError:
    """Return the error of a budget that cannot be met, with settings that would meet it."""
    multiplier = section.noise_multiplier or 1000.0

    def cost(count: int) -> float:
        return epsilon_of([Releases(count, multiplier, sampled, population)], section.delta)

    most = most_rounds(budget, rounds.count, cost)
    ways = [f"privacy.noise_multiplier to at least {least:.4g}"] if least is not None else []
    ways += [f"rounds.count to at most {most}"] if most else []
    ways = ways or ["a larger privacy.epsilon"]
    return RecipeError(
        f"{rounds.count} rounds with noise multiplier {multiplier:.4g} cost epsilon"
        f" {cost(rounds.count):.4g} at delta {section.delta:g}; the recipe's budget is"
        f" {budget:.4g}.",
        code="privacy.budget",
        hint=f"set {', or '.join(ways)}",
    )
