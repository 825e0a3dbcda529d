"""Intervals and paired differences against published quantiles and examples worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefed.simulator.sweep.statistics import Better, paired, spread, t_quantile, verdict

T_TABLE = {1: 12.706, 2: 4.303, 3: 3.182, 5: 2.571, 10: 2.228, 20: 2.086, 30: 2.042, 120: 1.980}
"""Two-sided 95 % of Student's t, as in Fisher and Yates, Statistical Tables, table III."""


@pytest.mark.parametrize(("freedom", "published"), T_TABLE.items())
def test_the_quantiles_are_those_of_the_published_table(freedom: int, published: float) -> None:
    assert t_quantile(freedom) == pytest.approx(published, abs=5e-4)


def test_the_margin_of_a_mean_is_half_its_interval() -> None:
    # Deviations -2, 0, 1, 1 from the mean 5: s² = 6 / 3, s / √4 = √2 / 2.
    values = spread([3.0, 5.0, 6.0, 6.0])
    assert (values.mean, values.count) == (5.0, 4)
    assert values.deviation == pytest.approx(math.sqrt(2))
    assert values.margin == pytest.approx(3.182 * math.sqrt(2) / 2, rel=1e-3)
    assert spread([0.5]).margin is None


def test_the_interval_covers_the_true_mean_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    spreads = [spread(draws) for draws in rng.normal(3.0, 2.0, (2000, 4)).tolist()]
    covered = [abs((one.mean or 0.0) - 3.0) <= (one.margin or 0.0) for one in spreads]
    assert 0.935 < sum(covered) / len(covered) < 0.965


def test_differences_are_taken_by_seed() -> None:
    """Both vary by 30 points with the seed, and their difference is 1, 2 and 3 points."""
    reference = {1: 0.50, 2: 0.70, 3: 0.80, 9: 0.1}
    difference = paired({3: 0.83, 1: 0.51, 7: 0.9, 2: 0.72}, reference)
    assert difference.count == 3
    assert difference.mean == pytest.approx(0.02)
    assert difference.deviation == pytest.approx(0.01)
    assert difference.margin == pytest.approx(4.303 * 0.01 / math.sqrt(3), rel=1e-3)
    assert verdict(difference, "higher") == "within the noise"
    clear = paired({1: 0.52, 2: 0.72, 3: 0.821}, reference)  # 2, 2 and 2.1 points
    assert clear.margin == pytest.approx(4.303 * 0.000577350 / math.sqrt(3), rel=1e-3)
    assert verdict(clear, "higher") == "better"
    assert verdict(paired({1: 0.52}, reference), "higher") == "unknown"
    assert verdict(paired({8: 0.52}, reference), "higher") == "unknown"


@pytest.mark.parametrize(
    ("better", "above", "below"),
    [("higher", "better", "worse"), ("lower", "worse", "better"), (None, "higher", "lower")],
)
def test_a_verdict_follows_the_direction(better: Better | None, above: str, below: str) -> None:
    assert verdict(spread([1.0, 1.1, 0.9]), better) == above
    assert verdict(spread([-1.0, -1.1, -0.9]), better) == below
    assert verdict(spread([1.0, -1.1, 0.3]), better) == "within the noise"
    assert verdict(spread([0.0, 0.0]), better) == "within the noise"
    assert verdict(spread([0.5, 0.5]), better) == above


FINITE = st.floats(-100, 100)


@given(st.lists(st.tuples(FINITE, FINITE, FINITE), min_size=2, max_size=6))
def test_effects_of_the_seed_cancel(rows: list[tuple[float, float, float]]) -> None:
    own = {seed: value for seed, (value, _, _) in enumerate(rows)}
    other = {seed: value for seed, (_, value, _) in enumerate(rows)}
    effect = {seed: value for seed, (_, _, value) in enumerate(rows)}
    plain = paired(own, other)
    moved = paired(
        {seed: value + effect[seed] for seed, value in own.items()},
        {seed: value + effect[seed] for seed, value in other.items()},
    )
    back = paired(other, own)
    for name in ("mean", "deviation", "margin"):
        assert getattr(moved, name) == pytest.approx(getattr(plain, name), abs=1e-9)
    assert back.mean == pytest.approx(-(plain.mean or 0.0))
    assert back.margin == pytest.approx(plain.margin)
