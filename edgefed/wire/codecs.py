"""Codecs: compress named tensors, such as weights and their differences, for the wire.

An encoded blob is the letters ``EFC1``, the length of its header (uint32, little-endian), the
header (the codec's name and the tensors as in ``edgefed.wire.tensors``) and one zstd frame. The
frame holds the tensors in order: float32 as the codec encodes it, all other dtypes unchanged,
because counts and masks must not be rounded.

A coder converts a flat float32 array to a fixed number of bytes (exact, bfloat16 or int8) in a
layout that zstd compresses well: byte planes instead of interleaved bytes, because exponents repeat
and low mantissa bits do not. It works in blocks that fit into the processor's cache. Decoding uses
at most one multiplication per value, whose result IEEE 754 defines exactly, so all machines decode
the same values. Stretches of unlike bytes begin a zstd block each, which has a code of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from edgefed.errors import WireError
from edgefed.wire import limits
from edgefed.wire.tensors import (
    Array,
    Bytes,
    FrameContent,
    FrameHeader,
    Section,
    TensorSpec,
    array_from,
    compressed,
    header_of,
    malformed,
    prefix,
    raw,
    read_specs,
    specs_of,
    total_size,
)

Floats = npt.NDArray[np.float32]

_BLOCK = 1 << 16
_LARGEST = float(np.finfo(np.float32).max)
_LARGEST_BFLOAT16 = np.uint32(0x7F7F)
_EXPONENT = 0x7F80  # all ones in infinities and NaN, in the upper half of a float32


class Coder(Protocol):
    """A way to write float32 values.

    Attributes:
        name: as in the recipe.
        sparse: whether most values become zero, so that only differences can be written.
    """

    name: str
    sparse: bool

    def parts(self, count: int) -> tuple[int, ...]:
        """Return how many bytes ``count`` values take before compression, by stretch."""
        ...

    def code(self, values: Floats, out: Bytes, rng: np.random.Generator) -> None:
        """Write flat, finite ``values`` into ``out``, of ``sum(parts(values.size))`` bytes."""
        ...

    def restore(self, codes: Bytes, out: Floats) -> bool:
        """Decode ``codes`` into ``out``; return False when ``code`` cannot have written them."""
        ...


class Exact:
    """Float32 as it is, in four byte planes, highest byte first."""

    name = "fp32"
    sparse = False

    def parts(self, count: int) -> tuple[int, ...]:
        """Return how many bytes ``count`` values take before compression, by stretch."""
        return (count,) * 4

    def code(self, values: Floats, out: Bytes, rng: np.random.Generator) -> None:
        """Write the byte planes of ``values``."""
        bits = values.view(np.uint32)
        planes = out.reshape(4, -1)
        for block in blocks(values.size):
            split(bits[block], planes[:, block])

    def restore(self, codes: Bytes, out: Floats) -> bool:
        """Put the byte planes together."""
        planes = codes.reshape(4, -1)
        bits = out.view(np.uint32)
        for block in blocks(out.size):
            bits[block] = join(planes[:, block])
        return bool(np.isfinite(out).all())


class BFloat16:
    """The upper half of a float32, rounded to nearest, ties to even; relative error <= 2**-8."""

    name = "bf16"
    sparse = False

    def parts(self, count: int) -> tuple[int, ...]:
        """Return how many bytes ``count`` values take before compression, by stretch."""
        return (count,) * 2

    def code(self, values: Floats, out: Bytes, rng: np.random.Generator) -> None:
        """Write the two byte planes of the rounded values."""
        bits = values.view(np.uint32)
        high, low = out.reshape(2, -1)
        for block in blocks(values.size):
            half = bits[block] >> np.uint32(16)
            # Adding 0x7FFF, and 1 where the kept half is odd, carries over just where it rounds up
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
        for block in blocks(out.size):
            word = high[block].astype(np.uint32)
            word <<= np.uint32(8)
            word |= low[block]
            # Infinities and NaN, which are never written
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
    sparse = False

    def parts(self, count: int) -> tuple[int, ...]:
        """Return how many bytes ``count`` values take before compression, by stretch."""
        return (4 + count,)

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
        for block in blocks(values.size):
            multiples = work[: values[block].size]
            draws = rng.random(dtype=np.float32, out=noise[: multiples.size])
            np.divide(values[block], scale, out=multiples)
            multiples += draws
            np.floor(multiples, out=multiples)
            # In float32, 127 and a draw just below 1 add up to 128
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


class TopK:
    """The quarter of largest magnitude, as multiples of a power of two; all other values are zero.

    Sparsification with error feedback (Aji and Heafield 2017, arXiv:1704.05021; Stich et al. 2018,
    arXiv:1809.07599). Of equal magnitudes the first are kept. The scale is the least power of two
    whose 127-fold reaches every value, and rounding is to nearest, ties to even, without draws. The
    scale (float32, little-endian) precedes one bit for each value, whether it is kept (the lowest
    bit first), and the multiples of those kept. Differences of one grid add up without rounding, so
    that older ones can be merged (``edgefed.wire.exact_patches``).
    """

    name = "topk"
    sparse = True

    def parts(self, count: int) -> tuple[int, ...]:
        """Return how many bytes ``count`` values take before compression, by stretch."""
        return 4 + -(-count // 8), -(-count // KEPT)

    def code(self, values: Floats, out: Bytes, rng: np.random.Generator) -> None:
        """Write the scale, the places and the multiples."""
        head, kept = self.parts(values.size)
        scale = _power_of_two(float(np.abs(values).max(initial=0)))
        out[:4] = np.array([scale], dtype="<f4").view(np.uint8)
        mask = _largest(np.abs(values), kept)
        out[4:head] = np.packbits(mask, bitorder="little")
        multiples = np.rint(values[mask] / scale)
        out[head:].view(np.int8)[:] = np.clip(multiples, -127, 127)

    def restore(self, codes: Bytes, out: Floats) -> bool:
        """Multiply each code by the scale, and put it in its place."""
        head, kept = self.parts(out.size)
        scale = codes[:4].view("<f4").astype(np.float32)[0]
        bits = np.unpackbits(codes[4:head], bitorder="little")
        multiples = codes[head:].view(np.int8)
        fraction = math.frexp(scale)[0]  # NaN of NaN, and itself of infinity
        whole = bits[out.size :].any() or bits.sum() != kept or (multiples == -128).any()
        if fraction != 0.5 or not float(scale) * 127 <= _LARGEST or whole:
            return False
        out[:] = 0
        out[bits[: out.size].view(np.bool_)] = np.multiply(multiples, scale, dtype=np.float32)
        return True


KEPT = 4
"""``topk`` keeps one in so many values."""


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
    # The quotient may have been rounded down, and 127 of it would miss the largest value
    if float(scale) * 127 < largest:
        scale = np.nextafter(scale, np.float32(np.inf))
    if float(scale) * 127 > _LARGEST:
        scale = np.nextafter(scale, np.float32(0))
    return np.float32(scale)


def _power_of_two(largest: float) -> np.float32:
    """Return the least power of two whose 127-fold reaches ``largest``; 2**121 at the most."""
    # fraction * 2**exponent with 0.5 <= fraction < 1; at 0.5 it is a power of two itself
    fraction, exponent = math.frexp(largest / 127)
    return np.float32(math.ldexp(1, min(max(exponent - (fraction == 0.5), -149), 121)))


def _largest(sizes: Floats, count: int) -> npt.NDArray[np.bool_]:
    """Return which ``count`` of the sizes are largest, of equal ones the first."""
    if not sizes.size:
        return np.zeros(0, dtype=np.bool_)
    least = np.partition(sizes, sizes.size - count)[sizes.size - count]
    mask: npt.NDArray[np.bool_] = sizes > least
    # Of those equal to the least one that is kept, only as many as are missing
    mask[np.flatnonzero(sizes == least)[: count - np.count_nonzero(mask)]] = True
    return mask


def _saturate(word: npt.NDArray[np.uint32]) -> None:
    """Bring bfloat16 bits that were rounded up to infinity back to the largest value, in place."""
    infinite = (word & np.uint32(_EXPONENT)) == _EXPONENT
    if infinite.any():
        # 0x8000 is the sign, which stays
        word[infinite] = (word[infinite] & np.uint32(0x8000)) | _LARGEST_BFLOAT16


def blocks(count: int) -> list[slice]:
    """Return slices that cover ``count`` values and fit into the processor's cache."""
    return [slice(start, start + _BLOCK) for start in range(0, count, _BLOCK)]


def split(words: npt.NDArray[np.uint32], planes: Bytes) -> None:
    """Write words into four byte planes, highest byte first."""
    for plane in range(4):
        planes[plane] = words >> np.uint32(24 - 8 * plane)


def join(planes: Bytes) -> npt.NDArray[np.uint32]:
    """Return the words in four byte planes."""
    words: npt.NDArray[np.uint32] = planes[0].astype(np.uint32)
    for plane in range(1, 4):
        words <<= np.uint32(8)
        words |= planes[plane]
    return words


_MAGIC = b"EFC1"


@dataclass(frozen=True)
class Codec:
    """A way to write a model's tensors.

    Attributes:
        coder: how float32 tensors are written.
    """

    coder: Coder

    @property
    def name(self) -> str:
        """The name in the recipe and in a blob's header."""
        return self.coder.name

    def encode(self, arrays: Mapping[str, Array], rng: np.random.Generator) -> bytes:
        """Return the coded blob of ``arrays``; ``rng`` gives the draws of stochastic rounding.

        Raises:
            WireError: ``wire.not_finite``, naming the tensor that holds an infinity or NaN;
                ``wire.tensor`` for a dtype, shape, name or count that cannot be encoded.
        """
        specs = specs_of(arrays)
        head = prefix(_MAGIC, self.name, header_of(specs))
        size = _content_size(self.coder, specs)
        return compressed(head, self._sections(arrays, specs, rng), size)

    def _sections(
        self, arrays: Mapping[str, Array], specs: Mapping[str, TensorSpec], rng: np.random.Generator
    ) -> Iterator[Section]:
        """Yield the section of each tensor."""
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not is_finite(array):
                raise not_finite(name)
            section = np.empty(_section_size(self.coder, specs[name]), dtype=np.uint8)
            self._write(array, specs[name], section, rng)
            yield section, _parts(self.coder, specs[name])

    def _write(
        self, array: Array, spec: TensorSpec, section: Bytes, rng: np.random.Generator
    ) -> None:
        """Write one tensor into its section."""
        if spec.dtype == "float32":
            values = np.asarray(array, dtype=np.float32, order="C").reshape(-1)
            self.coder.code(values, section, rng)
        else:
            section[:] = np.frombuffer(raw(array), dtype=np.uint8) if spec.nbytes else 0


CODECS: Mapping[str, Codec] = MappingProxyType(
    {coder.name: Codec(coder) for coder in (Exact(), BFloat16(), Int8(), TopK())}
)
"""Every codec by its name: ``fp32`` (lossless), ``bf16``, ``int8``, ``topk``."""


def decode(
    blob: bytes,
    expected: Mapping[str, TensorSpec] | None,
    *,
    max_bytes: int = limits.MAX_BLOB_BYTES,
) -> dict[str, Array]:
    """Return the tensors in a coded blob, whichever codec wrote it, in the blob's order.

    See ``decode_each`` for arguments and errors.
    """
    return dict(decode_each(blob, expected, max_bytes=max_bytes))


def decode_each(
    blob: bytes,
    expected: Mapping[str, TensorSpec] | None,
    *,
    max_bytes: int = limits.MAX_BLOB_BYTES,
) -> Iterator[tuple[str, Array]]:
    """Yield the name and the array of each tensor in a coded blob, decoded one at a time.

    The arrays own their memory and are writable; their values are the same on every machine.

    Args:
        blob: bytes made by ``Codec.encode``.
        expected: the tensors that the blob must hold, in any order; None accepts any tensors.
        max_bytes: the most that the arrays may take.

    Raises:
        WireError: ``wire.codec`` for an unknown codec; ``wire.not_finite`` for values that no codec
            writes; ``wire.tensor``, naming the difference, for anything else. Sizes are checked
            before anything is allocated for them.
    """
    header = FrameHeader(_MAGIC, blob)
    coder = _coder(header.text())
    specs = read_specs(header, expected)
    header.end()
    total_size(specs, max_bytes)
    content = FrameContent(header.body, _content_size(coder, specs))
    for name, spec in specs.items():
        yield name, _read(coder, content.read(_section_size(coder, spec)), name, spec)


def _read(coder: Coder, section: Bytes, name: str, spec: TensorSpec) -> Array:
    """Return the tensor in its section."""
    if spec.dtype != "float32":
        array = array_from(section.data, name, spec)
        finite = array.dtype.kind != "f" or is_finite(array)
    else:
        array = np.empty(spec.shape, dtype=np.float32)
        finite = coder.restore(section, array.reshape(-1))
    if not finite:
        raise not_finite(name)
    return array


def _coder(name: str) -> Coder:
    """Return the coder of that name."""
    codec = CODECS.get(name)
    if codec is None:
        raise WireError(
            f"A blob is encoded with {name[:40]!r}, which is unknown.",
            code="wire.codec",
            hint=f"the codecs are {', '.join(CODECS)}",
        )
    return codec.coder


def _parts(coder: Coder, spec: TensorSpec) -> tuple[int, ...]:
    """Return how many bytes one tensor takes before compression, by stretch."""
    return coder.parts(spec.count) if spec.dtype == "float32" else (spec.nbytes,)


def _section_size(coder: Coder, spec: TensorSpec) -> int:
    """Return how many bytes one tensor takes before compression."""
    return sum(_parts(coder, spec))


def _content_size(coder: Coder, specs: Mapping[str, TensorSpec]) -> int:
    """Return how many bytes all tensors take before compression."""
    size = sum(_section_size(coder, spec) for spec in specs.values())
    if size > limits.MAX_BLOB_BYTES:
        raise malformed(f"its tensors take {size} bytes")
    return size


def not_finite(name: str) -> WireError:
    """Return the error for a tensor with an infinity or NaN."""
    return WireError(
        f"The tensor {name!r} holds a value that is not finite.",
        code="wire.not_finite",
        hint="training diverged: lower the learning rate or clip gradients",
    )
