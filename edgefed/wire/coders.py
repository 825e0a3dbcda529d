"""Encode and decode the float32 values of one tensor: exact, bfloat16 or int8.

A coder converts a flat array to a fixed number of bytes in a layout that zstd compresses well: byte
planes instead of interleaved bytes, because exponents repeat and low mantissa bits do not. It works
in blocks that fit into the processor's cache. Decoding uses at most one multiplication per value,
whose result IEEE 754 defines exactly, so all machines decode the same values.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

_BLOCK = 1 << 16
_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_BFLOAT16 = np.uint32(0x7F7F)
_EXPONENT = 0x7F80  # all ones in infinities and NaN, in the upper half of a float32


class Coder(Protocol):
    """A way to write float32 values.

    Attributes:
        name: as in the recipe.
    """

    name: str

    def size(self, count: int) -> int:
        """Return how many bytes ``count`` values take before compression."""
        ...

    def code(self, values: Floats, out: Bytes, rng: np.random.Generator) -> None:
        """Write flat, finite ``values`` into ``out``, of ``size(values.size)`` bytes."""
        ...

    def restore(self, codes: Bytes, out: Floats) -> bool:
        """Decode ``codes`` into ``out``; return False when ``code`` cannot have written them."""
        ...


class Exact:
    """Float32 as it is, in four byte planes, highest byte first."""

    name = "fp32"

    def size(self, count: int) -> int:
        """Return how many bytes ``count`` values take before compression."""
        return 4 * count

    def code(self, values: Floats, out: Bytes, rng: np.random.Generator) -> None:
        """Write the byte planes of ``values``."""
        bits = values.view(np.uint32)
        planes = out.reshape(4, -1)
        for block in _blocks(values.size):
            for plane in range(4):
                planes[plane, block] = bits[block] >> np.uint32(24 - 8 * plane)

    def restore(self, codes: Bytes, out: Floats) -> bool:
        """Put the byte planes together."""
        planes = codes.reshape(4, -1)
        bits = out.view(np.uint32)
        for block in _blocks(out.size):
            word = planes[0, block].astype(np.uint32)
            for plane in range(1, 4):
                word <<= np.uint32(8)
                word |= planes[plane, block]
            bits[block] = word
        return bool(np.isfinite(out).all())


class BFloat16:
    """The upper half of a float32, rounded to nearest, ties to even; relative error <= 2**-8."""

    name = "bf16"

    def size(self, count: int) -> int:
        """Return how many bytes ``count`` values take before compression."""
        return 2 * count

    def code(self, values: Floats, out: Bytes, rng: np.random.Generator) -> None:
        """Write the two byte planes of the rounded values."""
        bits = values.view(np.uint32)
        high, low = out.reshape(2, -1)
        for block in _blocks(values.size):
            half = bits[block] >> np.uint32(16)
            word = (half & np.uint32(1)) + np.uint32(0x7FFF)
            word += bits[block]
            word >>= np.uint32(16)
            _saturate(word)
            high[block] = word >> np.uint32(8)
            low[block] = word

    def restore(self, codes: Bytes, out: Floats) -> bool:
        """Put the upper halves together over zeros."""
        high, low = codes.reshape(2, -1)
        bits = out.view(np.uint32)
        for block in _blocks(out.size):
            word = high[block].astype(np.uint32)
            word <<= np.uint32(8)
            word |= low[block]
            if ((word & np.uint32(_EXPONENT)) == _EXPONENT).any():
                return False
            word <<= np.uint32(16)
            bits[block] = word
        return True


class Int8:
    """Whole multiples, -127 to 127, of one scale for the tensor, by stochastic rounding.

    A value x becomes floor(x / scale + u) with u uniform in [0, 1), whose mean is x / scale:
    unbiased, and off by less than one scale. QSGD (Alistarh et al. 2017, arXiv:1610.02132, section
    3.1) with the maximum as norm. The scale (float32, little-endian) precedes the codes; zero means
    that every value is zero.
    """

    name = "int8"

    def size(self, count: int) -> int:
        """Return how many bytes ``count`` values take before compression."""
        return 4 + count

    def code(self, values: Floats, out: Bytes, rng: np.random.Generator) -> None:
        """Write the scale and the rounded multiples."""
        scale = _scale(values)
        out[:4] = np.array([scale], dtype="<f4").view(np.uint8)
        codes = out[4:].view(np.int8)
        if scale == 0:
            codes[:] = 0
            return
        noise = np.empty(min(_BLOCK, values.size), dtype=np.float32)
        work = np.empty_like(noise)
        for block in _blocks(values.size):
            multiples = work[: values[block].size]
            draws = rng.random(dtype=np.float32, out=noise[: multiples.size])
            np.divide(values[block], scale, out=multiples)
            multiples += draws
            np.floor(multiples, out=multiples)
            np.clip(multiples, -127, 127, out=multiples)
            codes[block] = multiples

    def restore(self, codes: Bytes, out: Floats) -> bool:
        """Multiply each code by the scale."""
        scale = codes[:4].view("<f4").astype(np.float32)[0]
        multiples = codes[4:].view(np.int8)
        # Not (a <= b) also catches NaN.
        if not (0 <= float(scale) * 127 <= _LARGEST) or (multiples == -128).any():
            return False
        np.multiply(multiples, scale, out=out, dtype=np.float32)
        return True


def is_finite(values: npt.NDArray[Any]) -> bool:
    """Return whether no value is infinite or NaN, without a temporary for large arrays."""
    if not values.size:
        return True
    with np.errstate(invalid="ignore"):  # a signalling NaN would warn
        return bool(np.isfinite(values.max()) and np.isfinite(values.min()))


def _scale(values: Floats) -> np.float32:
    """Return the least scale whose 127-fold reaches every value and is itself finite."""
    if not values.size:
        return np.float32(0)
    largest = max(float(values.max()), -float(values.min()))
    scale = np.float32(largest / 127)
    if float(scale) * 127 < largest:
        scale = np.nextafter(scale, np.float32(np.inf))
    if float(scale) * 127 > _LARGEST:
        scale = np.nextafter(scale, np.float32(0))
    return np.float32(scale)


def _saturate(word: npt.NDArray[np.uint32]) -> None:
    """Bring bfloat16 bits that were rounded up to infinity back to the largest value, in place."""
    infinite = (word & np.uint32(_EXPONENT)) == _EXPONENT
    if infinite.any():
        word[infinite] = (word[infinite] & np.uint32(0x8000)) | _LARGEST_BFLOAT16


def _blocks(count: int) -> list[slice]:
    """Return slices that cover ``count`` values."""
    return [slice(start, start + _BLOCK) for start in range(0, count, _BLOCK)]
