"""Clipped updates as integers, their exact sum, and discrete Gaussian noise on it.

With C the clipping norm and z the noise multiplier, an update x becomes the integers

    v = trunc(x min(1, C / |x|) R / C)      |v| <= R, checked with integers
    R = floor(2^k / z)                      k as large as R <= 2^30 allows

and the noise of standard deviation 2^k >= z R is added to the integers. Floating-point rounding
before that cannot make an update longer than R. Only the noisy integers are scaled back by C / R.
The order of the updates does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edgefed.sharing.discrete_gaussian import MOST_BITS, Integers, discrete_gaussian
from edgefed.sharing.random_words import RandomWords
from edgefed.sharing.types import Array

RADIUS_BITS = 30
"""Squares of integers of this size can be summed exactly in 64 bits."""

MOST_UPDATES = 2**32
"""With more, a sum could exceed 63 bits."""

LARGEST = 64.0
"""Largest magnitude of returned values: the limit of an exact mean."""


@dataclass(frozen=True)
class Grid:
    """The integer grid of updates.

    Attributes:
        clip: C.
        radius: R, the clipping norm in integers.
        noise_bits: k, with 2^k the standard deviation of the noise.
    """

    clip: float
    radius: int
    noise_bits: int

    @property
    def step(self) -> float:
        """The value of the integer 1."""
        return self.clip / self.radius


def grid_of(clip: float, multiplier: float) -> Grid:
    """Return the grid of a clipping norm and a noise multiplier, from 2^-16 to 2^10.

    Raises:
        ValueError: there is no such grid.
    """
    if not (2.0**-16 <= multiplier <= 2.0**10 and 0 < clip < math.inf):
        raise ValueError(f"no noise of multiplier {multiplier} for norm {clip}")
    bits = min(MOST_BITS, RADIUS_BITS + math.floor(math.log2(multiplier)))
    return Grid(clip, math.floor(2**bits / multiplier), bits)


def norm_of(arrays: Mapping[str, Array]) -> float:
    """Return the L2 norm over all arrays."""
    squares = (np.square(array, dtype=np.float64).sum() for array in arrays.values())
    return math.sqrt(math.fsum(float(square) for square in squares))


def clipped(arrays: Mapping[str, Array], clip: float) -> dict[str, Array]:
    """Return arrays scaled down to a norm of about ``clip``, in their own types."""
    norm = norm_of(arrays)
    if norm <= clip:
        return dict(arrays)
    factor = clip / norm
    return {name: (array * factor).astype(array.dtype) for name, array in arrays.items()}


def as_integers(arrays: Mapping[str, Array], grid: Grid) -> dict[str, Integers]:
    """Return the integers of an update, whose norm is at most the grid's radius.

    One with values that are not finite, of a training that diverged, counts as 0.
    """
    norm = norm_of(arrays)
    if not math.isfinite(norm):
        return {name: np.zeros(array.shape, np.int64) for name, array in arrays.items()}
    factor = min(1.0, grid.clip / norm) / grid.step if norm else 0.0
    while True:
        rounded = {
            name: np.trunc(np.multiply(array, factor, dtype=np.float64)).astype(np.int64)
            for name, array in arrays.items()
        }
        if sum(int(np.square(array).sum()) for array in rounded.values()) <= grid.radius**2:
            return rounded
        factor *= 1 - 2.0**-40  # the factor's rounding made it too long


class PrivateSum:
    """A sum of clipped updates, added one at a time; it can be read with noise only.

    Args:
        like: arrays with the names and shapes of the updates.
        grid: of the integers.
    """

    def __init__(self, like: Mapping[str, Array], grid: Grid) -> None:
        self._grid = grid
        self._sums = {name: np.zeros(array.shape, np.int64) for name, array in like.items()}
        self.count = 0

    def add(self, arrays: Mapping[str, Array]) -> None:
        """Clip an update and add it."""
        if self.count >= MOST_UPDATES:
            raise ValueError("too many updates for one sum")
        for name, integers in as_integers(arrays, self._grid).items():
            self._sums[name] += integers
        self.count += 1

    def noisy_mean(self, words: RandomWords) -> dict[str, Array]:
        """Return the noisy sum over the number of updates, as float32 within ±64."""
        return {
            name: _scaled(total + _noise(total, self._grid, words), self._grid, self.count)
            for name, total in self._sums.items()
        }


def noisy(arrays: Mapping[str, Array], grid: Grid, words: RandomWords) -> dict[str, Array]:
    """Return one update clipped, with noise of its own, as float32 within ±64."""
    return {
        name: _scaled(integers + _noise(integers, grid, words), grid, 1)
        for name, integers in as_integers(arrays, grid).items()
    }


def noisy_count(count: int, deviation: float, words: RandomWords) -> float:
    """Return a number of devices with noise of this standard deviation, at least."""
    grid = grid_of(1.0, deviation)
    return (count * grid.radius + int(discrete_gaussian(grid.noise_bits, 1, words)[0])) * grid.step


def _noise(integers: Integers, grid: Grid, words: RandomWords) -> Integers:
    return discrete_gaussian(grid.noise_bits, integers.size, words).reshape(integers.shape)


def _scaled(integers: Integers, grid: Grid, count: int) -> Array:
    values = integers * (grid.step / count)
    return np.clip(values, -LARGEST, LARGEST).astype(np.float32)
