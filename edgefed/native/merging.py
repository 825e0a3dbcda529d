"""Call the compiled kernel that adds to exact sums (``learn/aggregation/exact_mean.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edgefed.native.library import native

Array = npt.NDArray[Any]


def add(cells: Array, values: Array, scale: float, weight: int, bound: float) -> bool:
    """Add ``weight`` times the values on the grid of 1/``scale``, modulo 2^64, and check them.

    Args:
        cells: uint64 (n,), contiguous; they stay unchanged if a value is refused.
        values: float32 or float64 (n,), contiguous.
        scale: a power of two.
        weight: modulo 2^64, so that a negative one subtracts.
        bound: largest allowed magnitude.

    Returns:
        Whether all values are numbers within the bound.
    """
    library = native().library
    assert library is not None
    wide = values.dtype == np.float64
    merge = library.edgefed_merge_doubles if wide else library.edgefed_merge_floats
    where = cells.ctypes.data, values.ctypes.data, values.size, scale
    if merge(*where, weight % 2**64, bound):
        return True
    merge(*where, -weight % 2**64, bound)
    return False
