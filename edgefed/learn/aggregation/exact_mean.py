"""The exact weighted mean: the same bits for any order of answers, in O(model) memory.

Floating-point sums depend on their order; integer sums do not. Each value is therefore rounded to a
grid of 2^-bits, multiplied by its weight in whole units, and summed in 64-bit integers. The error
of a mean is at most half a grid step, 2^-(bits + 1), plus the final rounding to float32. bits is 40
up to a total weight of 65,535 units, and decreases by one whenever the total doubles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefed.errors import DataError
from edgefed.learn.base.types import Array, Tensors
from edgefed.native import merging
from edgefed.native.library import native

BOUND_BITS = 6
BOUND = float(2**BOUND_BITS)
"""Largest magnitude of a floating-point value that can be merged."""

SUM_BITS = 62
MOST_BITS = 40
"""The finest grid: 2^-40 is a thousandth of the last place of a float32 near 1e-2."""

MAX_TOTAL_WEIGHT = 2**36 - 1
"""Largest total weight; beyond it the grid would be coarser than 2^-20."""

BLOCK = 16 * 1024
"""Values handled at a time, so that the temporaries stay in the cache."""

MAGIC = 1.5 * 2.0**52
"""Added to a float64 below 2^51, it leaves the nearest integer in the low bits of the sum."""

MAGIC_BITS = int(np.array(MAGIC).view(np.uint64))


@dataclass(frozen=True)
class _Sum:
    """The sum of one tensor.

    Attributes:
        shape: the tensor's.
        dtype: the tensor's.
        cells: uint64 (size,): the weighted sum modulo 2^64; for floats, with ``MAGIC_BITS`` too
            much in it for each unit of weight.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    cells: Array

    @property
    def is_float(self) -> bool:
        """Whether values are put on the grid, or are integers already."""
        return self.dtype.kind == "f"


class ExactMean:
    """A weighted mean of sets of tensors, added one set at a time.

    Args:
        specs_like: a set with the names, shapes and kinds of those to come; its values are not
            read. Floats become float32; integers stay as they are.
        total_weight: upper bound of the sum of all weights, 1 to ``MAX_TOTAL_WEIGHT`` in units of
            2^-``fraction_bits``.
        fraction_bits: weights are rounded to multiples of 2^-``fraction_bits``; 0 for whole
            weights. Each bit costs the values one bit of their grid above a total of 65,535 units.

    Raises:
        DataError: ``merge.weight``, or ``merge.dtype`` for tensors that have no mean.
    """

    def __init__(self, specs_like: Tensors, total_weight: int, fraction_bits: int = 0) -> None:
        if not 1 <= total_weight << fraction_bits <= MAX_TOTAL_WEIGHT:
            raise DataError(
                f"Answers cannot be merged with a total weight of {total_weight}.",
                code="merge.weight",
                hint="weights are numbers of samples, together 1 to "
                f"{MAX_TOTAL_WEIGHT >> fraction_bits}",
            )
        self.total_weight = total_weight
        self.fraction_bits = fraction_bits
        self._total_units = total_weight << fraction_bits
        self._units = 0
        self.bits = grid_bits(self._total_units)
        # Times all units, integers stay below 2^SUM_BITS
        self._integer_bound = 2 ** (SUM_BITS - self._total_units.bit_length())
        self._sums = {name: _empty_sum(name, array) for name, array in specs_like.items()}

    @property
    def weight(self) -> float:
        """The weight of all that was added."""
        return self._units / float(2**self.fraction_bits)

    def add(self, arrays: Tensors, weight: float) -> None:
        """Add a set of tensors ``weight`` times; all of it or, on an error, nothing.

        Args:
            arrays: same names, shapes and kinds as the others; floats within ±``BOUND``.
            weight: at least half a unit of 2^-``fraction_bits``; rounded to whole units.

        Raises:
            DataError: ``merge.weight``, ``merge.shape``, or ``merge.range`` for values that are
                not finite or too large.
        """
        units = self._units_of(weight)
        if units < 1 or self._units + units > self._total_units:
            raise DataError(
                f"An answer of weight {weight} does not fit: {self.weight:.15g}"
                f" of {self.total_weight} is merged.",
                code="merge.weight",
                hint="an answer weighs at least one unit and at most what its device announced",
            )
        self._check(arrays)
        scale, added = 2.0**self.bits, list[str]()
        for name, total in self._sums.items():
            values = np.ravel(arrays[name])
            if not total.is_float:
                _add_integers(total.cells, values, units)
            elif not add_floats(total.cells, values, scale, units):
                self._take_back(arrays, added, units)
                raise _out_of_range(name, BOUND)
            added.append(name)
        self._units += units

    def _units_of(self, weight: float) -> int:
        """Return a weight in units; a part of a unit is an error where weights are whole."""
        units = float(weight) * float(2**self.fraction_bits)
        if not math.isfinite(units) or (not self.fraction_bits and units != int(units)):
            return 0
        return round(units)

    def mean(self, weight: float | None = None, *, last: bool = False) -> Tensors:
        """Return the weighted sum of all that was added over its weight.

        Floats are float32, and integers go to the nearest.

        Args:
            weight: to divide by, in place of the weight that was added; at least half a unit.
            last: whether to free the memory of the sums, so that this object is used up.

        Raises:
            DataError: ``merge.empty``: nothing was added.
        """
        if not self._units:
            raise DataError(
                "There is no mean without answers.",
                code="merge.empty",
                hint="keep the weights and ask again",
            )
        divisor = self._units if weight is None else round(weight * 2**self.fraction_bits)
        sums = self._sums if last else dict(self._sums)
        return {name: self._mean(sums.pop(name), divisor) for name in list(sums)}

    def _check(self, arrays: Tensors) -> None:
        """Check a set before any of it is added, but for the range of floats."""
        if arrays.keys() != self._sums.keys():
            name = sorted(arrays.keys() ^ self._sums.keys())[0]
            raise _unlike(name, "missing" if name in self._sums else "not part of the model")
        for name, total in self._sums.items():
            array = arrays[name]
            if array.shape != total.shape or (array.dtype.kind == "f") != total.is_float:
                raise _unlike(name, f"{array.dtype}{array.shape}, not {total.dtype}{total.shape}")
            if not total.is_float and not _within(array, self._integer_bound):
                raise _out_of_range(name, self._integer_bound)

    def _take_back(self, arrays: Tensors, names: Sequence[str], weight: int) -> None:
        """Subtract the part of a set that was added: sums of integers are exact."""
        for name in names:
            total, values = self._sums[name], np.ravel(arrays[name])
            if total.is_float:
                add_floats(total.cells, values, 2.0**self.bits, -weight)
            else:
                _add_integers(total.cells, values, -weight)

    def _mean(self, total: _Sum, units: int) -> Array:
        """Return the sum of one tensor over so many units of weight."""
        if total.is_float:
            mean = np.empty(total.cells.size, np.float32)
            # Each unit of weight has added MAGIC_BITS, which are taken out modulo 2^64
            offset, divisor = np.uint64(MAGIC_BITS * self._units % 2**64), 2.0**self.bits
            for start in range(0, mean.size, BLOCK):
                sums = (total.cells[start : start + BLOCK] - offset).view(np.int64)
                mean[start : start + BLOCK] = sums / (units * divisor)
            return mean.reshape(total.shape)
        quotient, rest = np.divmod(total.cells.view(np.int64), units)
        # divmod rounds down, so the rest is not negative, and halves go up
        rounded = quotient + (2 * rest >= units)
        return rounded.astype(total.dtype).reshape(total.shape)


def grid_bits(total_units: int) -> int:
    """Return the bits of the grid on which values of this total weight are summed."""
    return min(SUM_BITS - BOUND_BITS - total_units.bit_length(), MOST_BITS)


def add_floats(cells: Array, values: Array, scale: float, weight: int) -> bool:
    """Add ``weight`` times the values on the grid of 1/``scale``, modulo 2^64.

    The kernels and numpy leave the same bits.

    Returns:
        Whether all values are numbers within ``BOUND``; if not, the cells are as they were.
    """
    values = np.asarray(values, np.float64 if values.dtype.itemsize == 8 else np.float32, order="C")
    if native().library is not None:
        return merging.add(cells, values, scale, weight, BOUND)
    if not _within(values, BOUND):
        return False
    _add_by_numpy(cells, values, scale, weight)
    return True


def _add_by_numpy(cells: Array, values: Array, scale: float, weight: int) -> None:
    """Add in blocks.

    Scaling by a power of two is exact in the values' own kind. Adding ``MAGIC`` rounds to an
    integer and leaves it, plus ``MAGIC_BITS``, as the bits of the float64: quicker than rounding
    and converting, and the constant is taken out of the sum at the end.
    """
    scaled = np.empty(min(BLOCK, values.size), values.dtype)
    wide = np.empty(scaled.size, np.float64)
    # Modulo 2^64, so that a negative weight takes away exactly what was added
    factor, scale_like = np.uint64(weight % 2**64), values.dtype.type(scale)
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK]
        here = wide[: block.size]
        here[:] = np.multiply(block, scale_like, out=scaled[: block.size])
        here += MAGIC
        bits = here.view(np.uint64)
        bits *= factor
        cells[start : start + BLOCK] += bits


def _add_integers(cells: Array, values: Array, weight: int) -> None:
    """Add ``weight`` times the values, in blocks, modulo 2^64."""
    for start in range(0, values.size, BLOCK):
        block = values[start : start + BLOCK].astype(np.int64).view(np.uint64)
        cells[start : start + BLOCK] += block * np.uint64(weight % 2**64)


def _empty_sum(name: str, array: Array) -> _Sum:
    """Return the sum of nothing, for tensors like ``array``."""
    if array.dtype.kind not in "fiu":
        raise DataError(
            f"Values of {name} are {array.dtype}, which have no mean.",
            code="merge.dtype",
            hint="merge floating-point numbers and integers only",
        )
    return _Sum(tuple(array.shape), array.dtype, np.zeros(array.size, np.uint64))


def _within(array: Array, bound: float) -> bool:
    """Return whether all values are numbers within ±``bound``."""
    # min and max hand a NaN on, and no comparison with it holds.
    return not array.size or bool(-bound <= array.min() <= array.max() <= bound)


def _out_of_range(name: str, bound: float) -> DataError:
    return DataError(
        f"Values of {name} are not finite numbers within ±{bound:g}.",
        code="merge.range",
        hint="the device's training diverged, or it sent other data",
    )


def _unlike(name: str, how: str) -> DataError:
    return DataError(
        f"An answer does not fit the model: {name} is {how}.",
        code="merge.shape",
        hint="every device must train the model that it was sent",
    )
