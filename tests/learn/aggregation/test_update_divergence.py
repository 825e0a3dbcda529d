"""Gradient divergence: its known values, the naive double sum, and the same bits in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations

import numpy as np
import pytest

from edgefed.errors import DataError
from edgefed.learn.aggregation.update_divergence import UpdateDivergence
from edgefed.learn.base.types import Array, Tensors

RIGHT = np.array([1.0, 0.0], np.float32)
UP = np.array([0.0, 3.0], np.float32)


def divergence(
    updates: Sequence[tuple[Tensors, float]], fraction_bits: int = 0
) -> UpdateDivergence:
    total = math.ceil(sum(weight for _, weight in updates))
    found = UpdateDivergence(updates[0][0], total, fraction_bits)
    for update, weight in updates:
        found.add(update, weight)
    return found


def naive(updates: list[tuple[Tensors, float]], name: str) -> float:
    """Equation 16 as it is written: a double sum over the devices."""
    pairs = [(update[name].astype(np.float64).ravel(), weight) for update, weight in updates]
    kept = [(values, weight) for values, weight in pairs if np.linalg.norm(values)]
    total = sum(weight for _, weight in kept)
    return sum(
        p / total * q / total * 0.5 * (1 - float(a @ b) / math.sqrt(float(a @ a) * float(b @ b)))
        for a, p in kept
        for b, q in kept
    )


def several(seed: int = 1, devices: int = 6) -> list[tuple[Tensors, float]]:
    """Updates of unlike sizes; one device changes no bias, and none the counter."""
    rng = np.random.default_rng(seed)
    updates = list[tuple[Tensors, float]]()
    for device in range(devices):
        size = np.float32(10.0 ** rng.uniform(-4, 1))
        weight = (rng.standard_normal((4, 25)) + 0.5).astype(np.float32) * size
        bias = rng.standard_normal(4).astype(np.float32) * np.float32(device != 2)
        counter = np.array(7, np.int64)
        updates.append(
            ({"weight": weight, "bias": bias, "counter": counter}, float(rng.integers(1, 90)))
        )
    return updates


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(RIGHT, UP, 0.25), (RIGHT, -5 * RIGHT, 0.5), (RIGHT, 7 * RIGHT, 0.0)],
    ids=["orthogonal", "opposite", "parallel"],
)
def test_two_devices_of_equal_weight(first: Array, second: Array, expected: float) -> None:
    found = divergence([({"w": first}, 10), ({"w": second}, 10)])
    assert found.per_tensor()["w"] == pytest.approx(expected, abs=1e-6)


def test_the_heavier_device_counts_for_more() -> None:
    # p = (3/4, 1/4): 2 * 3/16 * 1/2.
    found = divergence([({"w": RIGHT}, 3), ({"w": UP}, 1)])
    assert found.total() == pytest.approx(3 / 16, abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_it_equals_the_double_sum(seed: int) -> None:
    updates = several(seed)
    found = divergence(updates).per_tensor()
    assert set(found) == {"weight", "bias"}
    for name, value in found.items():
        assert value == pytest.approx(naive(updates, name), abs=1e-6)
        assert value is not None
        assert 0.0 <= value <= 0.5


def test_it_is_summed_over_the_tensors() -> None:
    updates = several()
    expected = naive(updates, "weight") + naive(updates, "bias")
    assert divergence(updates).total() == pytest.approx(expected, abs=2e-6)


def test_any_order_gives_the_same_bits() -> None:
    updates = several(devices=4)
    seen = {tuple(divergence(list(order)).per_tensor().values()) for order in permutations(updates)}
    assert len(seen) == 1


def test_threads_of_blas_change_no_bits() -> None:
    threads = pytest.importorskip("threadpoolctl").threadpool_limits
    rng = np.random.default_rng(1)
    updates = [({"w": rng.standard_normal(300_000, np.float32)}, 1.0) for _ in range(3)]
    seen = set()
    for limit in (1, 2, 3):
        with threads(limit):
            seen.add(divergence(updates).total())
    assert len(seen) == 1


def test_weights_may_be_fractions() -> None:
    updates = [(update, weight / 64) for update, weight in several()]
    found = divergence(updates, fraction_bits=16).per_tensor()
    assert found["weight"] == pytest.approx(naive(updates, "weight"), abs=1e-6)


def test_an_update_of_norm_zero_is_left_out_and_the_rest_normalised() -> None:
    silent: Tensors = {"w": np.zeros(2, np.float32)}
    found = divergence([({"w": RIGHT}, 10), (silent, 80), ({"w": UP}, 10)])
    assert found.total() == pytest.approx(0.25, abs=1e-6)
    none = divergence([(silent, 1)])
    assert none.per_tensor() == {"w": None}
    assert none.total() is None


def test_a_weight_that_does_not_fit_leaves_nothing_behind() -> None:
    silent: Tensors = {"a": np.zeros(2, np.float32), "b": UP}
    found = divergence([(silent, 2)])
    with pytest.raises(DataError) as caught:
        found.add({"a": UP, "b": RIGHT}, 1)
    assert caught.value.code == "merge.weight"
    assert found.per_tensor()["a"] is None


@pytest.mark.parametrize(
    ("update", "code"),
    [
        ({"a": RIGHT, "b": np.array([1, np.nan], np.float32)}, "merge.range"),
        ({"a": RIGHT, "b": np.array([1, np.inf], np.float32)}, "merge.range"),
        ({"a": RIGHT}, "merge.shape"),
        ({"a": RIGHT, "b": RIGHT[:1]}, "merge.shape"),
    ],
    ids=["nan", "infinite", "missing", "shape"],
)
def test_a_bad_update_leaves_nothing_behind(update: Tensors, code: str) -> None:
    good: Tensors = {"a": UP, "b": UP}
    found = UpdateDivergence(good, 3)
    found.add(good, 1)
    with pytest.raises(DataError) as caught:
        found.add(update, 1)
    assert caught.value.code == code
    assert found.per_tensor() == {"a": pytest.approx(0, abs=1e-6), "b": pytest.approx(0, abs=1e-6)}
