"""Epsilon of noisy updates, against numbers that do not come of the accountant."""

from __future__ import annotations

import math

import pytest
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


def test_a_cohort_of_everybody_is_not_amplified() -> None:
    plain = epsilon_of([Releases(9, 3.0)], DELTA)
    assert epsilon_of([Releases(9, 3.0, 50, 50)], DELTA) == plain


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
