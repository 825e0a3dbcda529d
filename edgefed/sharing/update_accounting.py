"""The disclosure of releases with Gaussian noise about one device: Rényi accounting.

The accountant is dp-accounting's.

Neighbours are replace-one: two fleets that differ in all data of one device, which takes part in
both. One clipped update then changes a sum by at most twice the clipping norm C. With noise of
standard deviation z C, the Gaussian mechanism has the noise multiplier z / 2 in dp-accounting's
terms, and so has the discrete Gaussian (``discrete_gaussian``).

A cohort drawn secretly and uniformly, m of n devices without replacement, amplifies privacy (Wang,
Balle, Kasiviswanathan: Subsampled Rényi Differential Privacy, AISTATS 2019). At each order the
divergence is the smaller of that bound and of the mechanism's without sampling. The (ε, δ) of all
releases together follows from their Rényi divergences at all orders, and holds also if later
questions depend on earlier releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from edgefed.sharing.types import Array

LEAST_MULTIPLIER, MOST_MULTIPLIER = 0.01, 1000.0
"""The range of noise multipliers that are considered."""

_DIGITS = 4
"""Significant digits of a computed multiplier, which is rounded up."""


@dataclass(frozen=True)
class Releases:
    """Releases of one kind.

    Attributes:
        count: number of releases.
        multiplier: z, the noise's standard deviation in units of the clipping norm.
        sampled, population: sizes of the cohort and of the population that it was secretly drawn
            from; equal where every device may have taken part.
    """

    count: int
    multiplier: float
    sampled: int = 1
    population: int = 1


def epsilon_of(releases: Sequence[Releases], delta: float) -> float:
    """Return the ε of all releases together at a δ; 0 without any."""
    kinds = tuple(release for release in releases if release.count)
    return _epsilon(kinds, delta) if kinds else 0.0


@lru_cache(maxsize=1024)
def _epsilon(releases: tuple[Releases, ...], delta: float) -> float:
    # The library takes a second to import, which only private runs shall wait for.
    from dp_accounting.rdp import RdpAccountant, compute_epsilon

    orders = RdpAccountant()._orders
    total = np.zeros(len(orders))
    for release in releases:
        total += release.count * _divergences(
            release.multiplier, release.sampled, release.population
        )
    return float(compute_epsilon(orders, total, delta)[0])


@lru_cache(maxsize=4096)
def _divergences(multiplier: float, sampled: int, population: int) -> Array:
    """Return the Rényi divergence of one release at each of the accountant's orders.

    Both the bound for a cohort without replacement and the Gaussian mechanism's own divergence hold
    for a sampled release: the former exceeds the latter where most of the population is sampled, or
    at high orders. The smaller of the two holds at each order by itself.
    """
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(multiplier / 2)
    events = [event]
    if sampled < population:
        events.append(dp_accounting.SampledWithoutReplacementDpEvent(population, sampled, event))
    bounds = []
    for dp_event in events:
        accountant = RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
        )
        bounds.append(accountant.compose(dp_event)._rdp)
    smallest: Array = np.minimum.reduce(bounds)
    smallest.flags.writeable = False  # the cache hands out this array itself
    return smallest


def least_multiplier(epsilon: float, cost: Callable[[float], float]) -> float | None:
    """Return the smallest multiplier, to 4 digits, whose cost is at most ε; None for none.

    Args:
        epsilon: the budget.
        cost: the ε of a multiplier, which decreases.
    """
    low, high = math.log(LEAST_MULTIPLIER), math.log(MOST_MULTIPLIER)
    if cost(MOST_MULTIPLIER) > epsilon:
        return None
    if cost(LEAST_MULTIPLIER) <= epsilon:
        return LEAST_MULTIPLIER
    while high - low > 1e-5:
        middle = (low + high) / 2
        low, high = (low, middle) if cost(math.exp(middle)) <= epsilon else (middle, high)
    return _rounded_up(math.exp(high))


def most_rounds(epsilon: float, most: int, cost: Callable[[int], float]) -> int:
    """Return the most rounds, up to ``most``, whose cost is at most ε; 0 for none."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if cost(middle) <= epsilon else (low, middle - 1)
    return low


def _rounded_up(value: float) -> float:
    scale = 10.0 ** (_DIGITS - 1 - math.floor(math.log10(value)))
    return min(MOST_MULTIPLIER, math.ceil(value * scale) / scale)
