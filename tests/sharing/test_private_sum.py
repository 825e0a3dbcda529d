"""Clipping to integers: exact norms, the sensitivity of a sum, and noise of the right size."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgefed.sharing.private_sum import (
    Grid,
    PrivateSum,
    as_integers,
    clipped,
    grid_of,
    noisy,
    noisy_count,
    norm_of,
)
from edgefed.sharing.random_words import Words, generator_words
from edgefed.sharing.types import Array

Update = dict[str, Array]


def update(seed: int, scale: float = 1.0, size: int = 1000) -> Update:
    draws = np.random.default_rng(seed)
    return {
        "a.weight": (scale * draws.normal(size=(size // 10, 10))).astype(np.float32),
        "a.bias": (scale * draws.normal(size=10)).astype(np.float32),
    }


def length(integers: dict[str, npt.NDArray[np.int64]]) -> int:
    """Return the squared norm, in numbers of any size."""
    return sum(int(value) ** 2 for each in integers.values() for value in each.ravel())


def integers_of(total: PrivateSum) -> dict[str, npt.NDArray[np.int64]]:
    return dict(total._sums)


@pytest.mark.parametrize("multiplier", [0.01, 0.1, 0.7, 1.0, 1.1, 8.0, 1000.0])
@pytest.mark.parametrize("clip", [1e-6, 0.3, 1.0, 1e6])
def test_the_noise_is_at_least_the_multiplier_of_the_norm(multiplier: float, clip: float) -> None:
    grid = grid_of(clip, multiplier)
    assert 2**grid.noise_bits >= multiplier * grid.radius
    assert 2**grid.noise_bits <= multiplier * grid.radius * (1 + 1e-6)
    assert 2**29 <= grid.radius <= 2**30
    assert grid.step * grid.radius == pytest.approx(clip)


@pytest.mark.parametrize("multiplier", [0.0, -1.0, math.nan, math.inf, 2000.0])
def test_no_other_multiplier_has_a_grid(multiplier: float) -> None:
    with pytest.raises(ValueError, match="no noise"):
        grid_of(1.0, multiplier)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    scale=st.floats(1e-9, 60),
    clip=st.floats(1e-3, 100),
    multiplier=st.floats(0.01, 1000),
)
def test_no_update_is_longer_than_the_radius_in_exact_arithmetic(
    seed: int, scale: float, clip: float, multiplier: float
) -> None:
    grid = grid_of(clip, multiplier)
    found = as_integers(update(seed, scale, size=50), grid)
    assert length(found) <= grid.radius**2


def test_a_short_update_stays_as_it_is_and_a_long_one_keeps_its_direction() -> None:
    grid = grid_of(1.0, 1.0)
    short = {"w": np.array([0.25, -0.5, 0.125], np.float32)}
    found = as_integers(short, grid)["w"] * grid.step
    assert np.allclose(found, short["w"], atol=2 * grid.step, rtol=0)
    long = update(1)
    found = as_integers(long, grid)["a.bias"] * grid.step
    assert np.allclose(found, long["a.bias"] / norm_of(long), atol=1e-6)
    assert math.sqrt(length(as_integers(long, grid))) == pytest.approx(grid.radius, rel=1e-6)


def test_an_update_that_is_not_finite_counts_as_nothing() -> None:
    grid = grid_of(1.0, 1.0)
    for bad in (math.nan, math.inf, -math.inf):
        found = as_integers({"w": np.array([1.0, bad], np.float32)}, grid)
        assert found["w"].tolist() == [0, 0]


def test_devices_clip_to_the_norm() -> None:
    long = update(2)
    found = clipped(long, 0.5)
    assert norm_of(found) == pytest.approx(0.5, rel=1e-6)
    assert {name: each.dtype for name, each in found.items()} == dict.fromkeys(long, np.float32)
    short = update(3, 1e-4)
    assert all(np.array_equal(clipped(short, 0.5)[name], short[name]) for name in short)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-6, 60), other=st.floats(1e-6, 60))
def test_one_device_changes_the_sum_by_the_norm_at_most(
    seed: int, scale: float, other: float
) -> None:
    """Added or removed: by the radius; replaced by any other: by twice the radius."""
    grid = grid_of(0.7, 0.9)
    others = [update(seed + n, scale, 40) for n in range(1, 4)]
    mine, instead = update(seed, scale, 40), {n: -a for n, a in update(seed, other, 40).items()}
    sums = []
    for last in ([], [mine], [instead]):
        total = PrivateSum(mine, grid)
        for each in (*others, *last):
            total.add(each)
        sums.append(integers_of(total))
    without, with_mine, with_other = sums
    assert length({n: with_mine[n] - without[n] for n in without}) <= grid.radius**2
    assert length({n: with_mine[n] - with_other[n] for n in without}) <= (2 * grid.radius) ** 2


def test_the_order_of_updates_does_not_matter() -> None:
    grid = grid_of(1.0, 0.5)
    updates = [update(seed) for seed in range(5)]
    found = []
    for order in (updates, updates[::-1]):
        total = PrivateSum(updates[0], grid)
        for each in order:
            total.add(each)
        found.append(total.noisy_mean(generator_words(np.random.default_rng(1))))
    assert all(np.array_equal(found[0][name], found[1][name]) for name in found[0])


def test_the_noise_of_a_mean_has_its_deviation_and_no_bias() -> None:
    grid = grid_of(2.0, 1.5)
    nothing = {"w": np.zeros(100_000, np.float32)}
    total = PrivateSum(nothing, grid)
    for _ in range(4):
        total.add(nothing)
    mean = total.noisy_mean(generator_words(np.random.default_rng(2)))["w"]
    assert mean.dtype == np.float32
    assert float(mean.std()) == pytest.approx(2.0 * 1.5 / 4, rel=0.02)
    assert abs(float(mean.mean())) < 0.01
    alone = noisy(nothing, grid, generator_words(np.random.default_rng(3)))["w"]
    assert float(alone.std()) == pytest.approx(2.0 * 1.5, rel=0.02)


def test_noise_beyond_what_can_be_merged_is_cut_off() -> None:
    found = noisy({"w": np.zeros(100, np.float32)}, grid_of(1.0, 1000.0), _seeded())["w"]
    assert np.abs(found).max() == 64.0


def test_a_count_has_noise_of_its_deviation() -> None:
    draws = [noisy_count(30, 2.5, _seeded(seed)) for seed in range(2000)]
    assert np.mean(draws) == pytest.approx(30, abs=0.3)
    assert np.std(draws) == pytest.approx(2.5, rel=0.1)


def _seeded(seed: int = 1) -> Callable[[int], Words]:
    return generator_words(np.random.default_rng(seed))


def test_a_grid_says_the_value_of_its_unit() -> None:
    assert Grid(2.0, 4, 3).step == 0.5
