"""Weighted updates as whole numbers, of which only the sum need be seen.

``ExactMean`` rounds each value to a grid, multiplies it by its weight and adds the whole numbers.
Here the device does the first two steps. Numbers are modulo 2^64, so that masks can be added to
them; ``parts_of_sum`` returns updates that ``ExactMean`` adds up to the same sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edgefed.errors import DIVERGED, DataError
from edgefed.learn.aggregation.exact_mean import (
    BOUND,
    BOUND_BITS,
    MAGIC_BITS,
    add_floats,
    grid_bits,
)
from edgefed.learn.base.types import Array, Tensors

LARGEST = BOUND - 1
"""Largest magnitude of a value that is summed: below ``BOUND``, as ``parts_of_sum`` needs."""

COUNT_BITS = 26
"""Integers, such as of batches seen, are below 2^26."""

MAX_TOTAL = 2**28 - 1
"""Largest total weight of a cohort."""


@dataclass(frozen=True)
class SummedGrid:
    """The positions of an update's values in a vector of whole numbers, and their grid.

    Attributes:
        tensors: name, dtype and shape of each tensor, sorted by name.
        total: upper bound of the sum of all updates' weights.
        bits: values are rounded to multiples of 2^-bits.
    """

    tensors: tuple[tuple[str, str, tuple[int, ...]], ...]
    total: int
    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.total <= MAX_TOTAL or not 1 <= self.bits <= grid_bits(self.total):
            raise DataError(
                f"Updates of weight {self.total} cannot be summed on a grid of 2^-{self.bits}.",
                code="secure.grid",
                hint=f"a cohort has up to {MAX_TOTAL:,} samples",
            )

    @property
    def count(self) -> int:
        """Number of values."""
        return sum(math.prod(shape) for _, _, shape in self.tensors)

    @property
    def width(self) -> int:
        """Bytes of a number: a sum of them keeps its value and its sign."""
        counts = any(not _is_float(dtype) for _, dtype, _ in self.tensors)
        largest = max(self.bits + BOUND_BITS, COUNT_BITS if counts else 0)
        # The bits of a value and of all weights, and a sign
        return min(8, (largest + self.total.bit_length() + 1 + 7) // 8)

    def weighted(self, arrays: Tensors, weight: int) -> Array:
        """Return an update times its weight as whole numbers modulo 2^64, uint64 (count,).

        Raises:
            DataError: ``merge.shape``, or ``merge.range`` for values out of bounds.
        """
        shapes = {name: (array.dtype.name, array.shape) for name, array in arrays.items()}
        if shapes != {name: (dtype, shape) for name, dtype, shape in self.tensors}:
            raise DataError("An update does not fit the model of its task.", code="merge.shape")
        cells = np.zeros(self.count, np.uint64)
        for name, part in self._parts(cells):
            _add(part, name, np.ravel(arrays[name]), self.bits, weight)
        return cells

    def sums(self, numbers: Array) -> dict[str, Array]:
        """Return the sums of all tensors, int64 in their shapes, of signed numbers (count,)."""
        shapes = {name: shape for name, _, shape in self.tensors}
        return {name: part.reshape(shapes[name]) for name, part in self._parts(numbers)}

    def parts_of_sum(self, sums: Mapping[str, Array], weights: Sequence[int]) -> Iterator[Tensors]:
        """Yield updates, one for each weight, whose weighted sum is exactly this one.

        With W the sum of the weights, S = W q + r and 0 <= r < W: each update is q, and the last
        one, which must weigh 1 unless it is alone and W is 1, is q + r.

        Raises:
            DataError: ``secure.sum``: the sum is not one of valid updates.
        """
        total = sum(weights)
        if weights[-1] != 1:
            raise ValueError("the last update has to weigh 1")
        quotients: dict[str, Array] = {}
        rests: dict[str, Array] = {}
        for name, dtype, _ in self.tensors:
            bound = int(LARGEST * 2.0**self.bits) if _is_float(dtype) else 2**COUNT_BITS
            here = sums[name]
            if here.size and not -bound * total <= int(here.min()) <= int(here.max()) <= (
                bound * total
            ):
                raise _invalid_sum(name)
            quotients[name], rests[name] = np.divmod(here, np.int64(total))
        for _ in weights[:-1]:
            yield self._values(quotients)
        # r is below 2^bits, so the last update is at most LARGEST + 1, which is BOUND
        yield self._values({name: quotient + rests[name] for name, quotient in quotients.items()})

    def _values(self, numbers: Mapping[str, Array]) -> Tensors:
        """Return numbers of the grid as values; a float64 holds them exactly."""
        return {
            name: np.ldexp(numbers[name].astype(np.float64), -self.bits)
            if _is_float(dtype)
            else numbers[name]
            for name, dtype, _ in self.tensors
        }

    def _parts(self, vector: Array) -> Iterator[tuple[str, Array]]:
        start = 0
        for name, _, shape in self.tensors:
            end = start + math.prod(shape)
            yield name, vector[start:end]
            start = end

    def to_json(self) -> dict[str, Any]:
        """Return the grid in a form for a state's ``params``."""
        tensors = [[name, dtype, list(shape)] for name, dtype, shape in self.tensors]
        return {"tensors": tensors, "total": self.total, "bits": self.bits}

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> SummedGrid:
        """Return the grid that ``to_json`` wrote."""
        tensors = ((name, dtype, tuple(shape)) for name, dtype, shape in known["tensors"])
        return cls(tuple(tensors), known["total"], known["bits"])


def _is_float(dtype: str) -> bool:
    return np.dtype(dtype).kind == "f"


def _add(cells: Array, name: str, values: Array, bits: int, weight: int) -> None:
    """Add values times a weight to numbers modulo 2^64."""
    if values.dtype.kind == "f":
        within = not values.size or bool(-LARGEST <= values.min() <= values.max() <= LARGEST)
        if not within or not add_floats(cells, values, 2.0**bits, weight):
            raise DataError(
                f"{DIVERGED}: values of {name} are not within ±{LARGEST:g}", code="merge.range"
            )
        # The constant that add_floats leaves for each unit of weight
        cells -= np.uint64(MAGIC_BITS * weight % 2**64)
        return
    # The absolute value of the least integer is itself, so both ends are compared
    if values.size and max(-int(values.min()), int(values.max())) >= 2**COUNT_BITS:
        raise DataError(f"Integers of {name} are too large to be summed.", code="merge.range")
    cells += values.astype(np.int64).view(np.uint64) * np.uint64(weight)


def _invalid_sum(name: str) -> DataError:
    return DataError(
        f"The sum of {name} is not one of valid updates.",
        code="secure.sum",
        hint="a device masked wrongly, or sent an update out of bounds",
    )
