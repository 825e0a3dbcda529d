"""Epsilon of noisy updates, against numbers that do not come of the accountant."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import mpmath
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy.optimize import brentq
from scipy.stats import norm

from edgefed.sharing.update_accounting import (
    Releases,
    epsilon_of,
    least_multiplier,
    most_rounds,
)

DELTA = 1e-5


def exact(mu: float, delta: float) -> float:
    """Return the ε of one Gaussian mechanism of sensitivity 1 and deviation 1 / μ.

    Balle, Wang: Improving the Gaussian Mechanism, ICML 2018, theorem 8. k releases are one with
    sqrt(k) times the μ.
    """

    def excess(epsilon: float) -> float:
        first = norm.cdf(mu / 2 - epsilon / mu)
        return float(first - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta)

    return float(brentq(excess, 0, 500))


@pytest.mark.parametrize(("multiplier", "count"), [(4.0, 1), (10.0, 1), (5.0, 40), (20.0, 300)])
def test_without_sampling_it_is_just_above_the_closed_form(multiplier: float, count: int) -> None:
    """Replacing a device moves the sum by twice the clipping norm, hence the 2."""
    wanted = exact(2 / multiplier * math.sqrt(count), DELTA)
    found = epsilon_of([Releases(count, multiplier)], DELTA)
    assert wanted <= found <= 1.1 * wanted


def test_releases_of_several_kinds_add_up_as_one_mechanism() -> None:
    together = epsilon_of([Releases(3, 5.0), Releases(7, 9.0)], DELTA)
    mu = 2 * math.sqrt(3 / 25 + 7 / 81)
    assert exact(mu, DELTA) <= together <= 1.1 * exact(mu, DELTA)
    assert together < epsilon_of([Releases(3, 5.0)], DELTA) + epsilon_of([Releases(7, 9.0)], DELTA)


def test_it_is_the_bound_for_sampling_without_replacement() -> None:
    """Theorem 9 of Wang, Balle, Kasiviswanathan at order 2, converted to (ε, δ).

    At order 2 the theorem is ε(2) <= log(1 + γ² min(4 (e^ε'(2) - 1), 2 e^ε'(2))) with ε'(2) the
    mechanism's, so the best order is no worse.
    """
    multiplier, sampled, population, count = 4.0, 20, 1000, 50
    base = 2 / (2 * (multiplier / 2) ** 2)
    gamma = sampled / population
    second = math.log1p(gamma**2 * min(4 * math.expm1(base), 2 * math.exp(base)))
    bound = count * second + math.log(1 / DELTA) + math.log(1 / 2) - math.log(2)
    found = epsilon_of([Releases(count, multiplier, sampled, population)], DELTA)
    assert 0 < found <= bound
    assert found < epsilon_of([Releases(count, multiplier)], DELTA) / 4


def plain(order: int, multiplier: float) -> mpmath.mpf:
    return order / (2 * (mpmath.mpf(multiplier) / 2) ** 2)


@cache
def difference(order: int, multiplier: float) -> mpmath.mpf:
    return mpmath.fsum(
        (-1) ** (order - each)
        * mpmath.binomial(order, each)
        * mpmath.exp((each - 1) * plain(each, multiplier))
        for each in range(order + 1)
    )


def own_bound(alpha: int, multiplier: float, gamma: float) -> mpmath.mpf:
    """Return the Rényi divergence of a sampled release at a whole order, with 60 digits.

    Theorem 9 of Wang, Balle, Kasiviswanathan with the forward differences B(l) of their section 3,
    and the divergence α / (2 σ²) of the Gaussian mechanism where that is smaller.
    """
    gamma, total = mpmath.mpf(gamma), mpmath.mpf(1)
    for order in range(2, alpha + 1):
        parts = [2 * mpmath.exp((order - 1) * plain(order, multiplier))]
        below, above = 2 * (order // 2), 2 * ((order + 1) // 2)
        product = difference(below, multiplier) * difference(above, multiplier)
        parts.append(4 * mpmath.sqrt(product))
        total += gamma**order * mpmath.binomial(alpha, order) * min(parts)
    return min(mpmath.log(total) / (alpha - 1), plain(alpha, multiplier))


@pytest.mark.parametrize(
    ("multiplier", "sampled", "population", "count"),
    [(6.0, 10, 400, 60), (8.0, 30, 100, 40), (8.066, 99, 100, 40)],
)
def test_at_each_order_the_smaller_of_both_bounds_counts(
    multiplier: float, sampled: int, population: int, count: int
) -> None:
    """The conversion is of Canonne, Kamath, Steinke 2020, proposition 12, over whole orders."""
    with mpmath.workdps(60):
        wanted = min(
            count * own_bound(alpha, multiplier, sampled / population)
            + mpmath.log(mpmath.mpf(alpha - 1) / alpha)
            - (mpmath.log(DELTA) + mpmath.log(alpha)) / (alpha - 1)
            for alpha in range(2, 33)
        )
    found = epsilon_of([Releases(count, multiplier, sampled, population)], DELTA)
    assert found <= wanted * (1 + 1e-9), "further orders can only lower it"
    assert found >= 0.98 * wanted


def test_a_cohort_of_nearly_everybody_needs_no_more_noise_than_one_of_everybody() -> None:
    """The bound for sampling alone is above 8 up to a multiplier of 15.73."""
    least = least_multiplier(8.0, lambda each: epsilon_of([Releases(40, each)], DELTA))
    assert least == 8.066
    assert epsilon_of([Releases(40, least, 99, 100)], DELTA) <= 8.0


def test_a_population_never_costs_privacy_and_a_larger_cohort_never_gains_it() -> None:
    for multiplier, count in ((0.5, 3), (12.0, 300)):
        plain = epsilon_of([Releases(count, multiplier)], DELTA)
        found = [
            epsilon_of([Releases(count, multiplier, sampled, 60)], DELTA)
            for sampled in (1, 40, 59, 60)
        ]
        assert found == sorted(found)
        assert found[0] < found[-1] == plain


def test_divergences_are_computed_once_for_each_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run asks after each round, mostly about kinds of releases that it has asked about."""
    composed = []

    class Counting(RdpAccountant):  # type: ignore[misc]  # the library has no types
        def compose(self, event: object, count: int = 1) -> Any:
            composed.append(event)
            return super().compose(event, count)

    monkeypatch.setattr("dp_accounting.rdp.RdpAccountant", Counting)
    kinds = [Releases(count, 7.125, 3, 9 + count) for count in (1, 2)]
    first = epsilon_of(kinds, 1e-4)
    assert len(composed) == 4, "with and without sampling"
    again = [replace(each, count=2 * each.count) for each in kinds]
    assert epsilon_of(again, 1e-4) > first
    assert epsilon_of(kinds, 1e-4) == first
    assert len(composed) == 4


def test_nothing_costs_nothing() -> None:
    assert epsilon_of([], DELTA) == 0.0
    assert epsilon_of([Releases(0, 1.0)], DELTA) == 0.0


@pytest.mark.parametrize("budget", [0.5, 3.0, 20.0])
def test_the_least_multiplier_meets_the_budget_and_hardly_less_does_not(budget: float) -> None:
    def cost(multiplier: float) -> float:
        return epsilon_of([Releases(30, multiplier)], DELTA)

    found = least_multiplier(budget, cost)
    assert found is not None
    assert cost(found) <= budget
    assert cost(found * 0.998) > budget
    assert found == float(f"{found:.4g}")


def test_no_multiplier_meets_a_tiny_budget() -> None:
    assert least_multiplier(1e-6, lambda _: 1.0) is None


def test_the_most_rounds_within_a_budget() -> None:
    def cost(rounds: int) -> float:
        return epsilon_of([Releases(rounds, 6.0)], DELTA)

    found = most_rounds(5.0, 1000, cost)
    assert cost(found) <= 5.0 < cost(found + 1)
    assert most_rounds(1e-9, 1000, cost) == 0
    assert most_rounds(1e9, 12, cost) == 12
