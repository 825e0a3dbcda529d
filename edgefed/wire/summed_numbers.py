"""Code the whole numbers of a sum for the wire: byte planes, which compress well.

A number n becomes 2n, or -2n - 1 if it is negative, so that the upper bytes of small numbers of
either sign are zero. The planes are tensors of one coded blob, the lowest bytes first.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgefed.wire.codecs import CODECS, decode
from edgefed.wire.tensors import TensorSpec

PLANES = 8

SUM_BYTES = 5
"""Bytes that a number of a sum takes at the most, as measured with trained updates."""


def encode_numbers(numbers: npt.NDArray[np.int64]) -> bytes:
    """Return the blob of numbers (count,); equal ones have the same bytes."""
    folded = (numbers << 1) ^ (numbers >> 63)
    planes = np.ascontiguousarray(folded.astype("<i8").view(np.uint8).reshape(-1, PLANES).T)
    arrays = {f"plane{place}": plane for place, plane in enumerate(planes)}
    # Planes are bytes, which the codec copies, so nothing is drawn
    return CODECS["fp32"].encode(arrays, np.random.default_rng(0))


def decode_numbers(blob: bytes, count: int) -> npt.NDArray[np.int64]:
    """Return the numbers (count,) in a blob.

    Raises:
        WireError: it is not a blob of so many numbers.
    """
    specs = {f"plane{place}": TensorSpec("uint8", (count,)) for place in range(PLANES)}
    arrays = decode(blob, specs)
    planes = np.stack([arrays[f"plane{place}"] for place in range(PLANES)], axis=1)
    folded = np.ascontiguousarray(planes).view("<u8").reshape(count).astype(np.uint64)
    return (folded >> np.uint64(1)).view(np.int64) ^ -(folded & np.uint64(1)).view(np.int64)
