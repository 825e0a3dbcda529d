"""Sums of whole numbers: the same bits as the plain merge, and no sum that updates cannot have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgefed.errors import DataError
from edgefed.learn.aggregation.exact_mean import ExactMean, grid_bits
from edgefed.learn.aggregation.summed_grid import LARGEST, SummedGrid
from edgefed.learn.base.types import Tensors
from edgefed.sharing.masking import packed, signed, unpacked

TENSORS = (("count", "int64", ()), ("w", "float32", (7, 3)))


def update(seed: int, largest: float = 1.0) -> Tensors:
    rng = np.random.default_rng(seed)
    size = rng.uniform(-9, np.log10(largest), (7, 3))
    values = rng.choice([-1, 1], (7, 3)) * 10.0**size
    return {"w": values.astype(np.float32), "count": np.array(rng.integers(-50, 50))}


def summed(grid: SummedGrid, updates: list[tuple[Tensors, int]]) -> dict[str, Any]:
    """Return the sums as they come over the wire."""
    total = np.zeros(grid.count, np.uint64)
    for arrays, weight in updates:
        total += unpacked(packed(grid.weighted(arrays, weight), grid.width), grid.width)
    return grid.sums(signed(unpacked(packed(total, grid.width), grid.width), grid.width))


@pytest.mark.parametrize("total", [700, 70_000, 2**27])
@pytest.mark.parametrize("weights", [(5, 90, 300), (1,), (1, 1, 1), (7, 1)])
def test_updates_of_the_sum_have_the_mean_of_the_updates(
    total: int, weights: tuple[int, ...]
) -> None:
    updates = [(update(seed, 30.0), weight) for seed, weight in enumerate(weights)]
    plain, again = ExactMean(update(0), total), ExactMean(update(0), total)
    for arrays, weight in updates:
        plain.add(arrays, weight)
    grid = SummedGrid(TENSORS, total, grid_bits(total))
    parts = [sum(weights) - 1, 1] if sum(weights) > 1 else [1]
    together = grid.parts_of_sum(summed(grid, updates), parts)
    for arrays, weight in zip(together, parts, strict=True):
        again.add(arrays, weight)
    assert {name: each.tobytes() for name, each in plain.mean().items()} == {
        name: each.tobytes() for name, each in again.mean().items()
    }


@pytest.mark.parametrize(("bits", "width"), [(8, 5), (16, 5), (20, 5), (24, 6), (40, 8)])
def test_a_coarser_grid_takes_fewer_bytes_and_rounds_to_it(bits: int, width: int) -> None:
    grid = SummedGrid(TENSORS, 700, bits)
    assert grid.width == width
    largest = {"w": np.full((7, 3), -LARGEST, np.float32), "count": np.array(-(2**26) + 1)}
    (part, _) = grid.parts_of_sum(summed(grid, [(largest, 700)]), [699, 1])
    assert np.array_equal(part["w"], largest["w"])
    assert part["count"] == largest["count"]
    arrays = update(3)
    (part,) = grid.parts_of_sum(summed(grid, [(arrays, 1)]), [1])
    error = np.abs(part["w"] - arrays["w"].astype(np.float64))
    assert 0 < error.max() <= 2.0 ** -(bits + 1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"w": np.full((7, 3), 63.5, np.float32)}, "Training diverged"),
        ({"w": np.full((7, 3), np.nan, np.float32)}, "Training diverged"),
        ({"count": np.array(2**26)}, "too large"),
        ({"count": np.array(-(2**63))}, "too large"),
        ({"w": np.zeros((3, 7), np.float32)}, "does not fit"),
        ({"w": np.zeros((7, 3), np.float64)}, "does not fit"),
        ({"more": np.zeros(2, np.float32)}, "does not fit"),
    ],
)
def test_an_update_out_of_bounds_is_not_summed(change: Tensors, reason: str) -> None:
    with pytest.raises(DataError, match=reason):
        SummedGrid(TENSORS, 700, 40).weighted({**update(1), **change}, 3)


def test_a_sum_that_no_updates_have_is_refused() -> None:
    grid = SummedGrid(TENSORS, 700, 40)
    sums = summed(grid, [(update(1), 5)])
    sums["w"][2, 1] = 64 * 2**40 * 5
    with pytest.raises(DataError, match="The sum of w is not one of valid updates"):
        list(grid.parts_of_sum(sums, [4, 1]))


@pytest.mark.parametrize(("total", "bits"), [(0, 40), (2**28, 27), (700, 41), (2**20, 40)])
def test_a_grid_is_within_what_a_sum_can_hold(total: int, bits: int) -> None:
    with pytest.raises(DataError, match="cannot be summed on a grid"):
        SummedGrid(TENSORS, total, bits)
