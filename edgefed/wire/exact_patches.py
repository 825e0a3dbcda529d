"""Exact patches: the difference between two versions of weights, with the same bits everywhere.

A float32 tensor becomes integers, whose differences lose nothing. Where all values of both versions
are multiples of a power of two 2^e, with factors below 2^24, these factors are the integers, as
after patches of the codec ``topk``; in other tensors the bit patterns are, which are close together
where the values are. A difference is folded, so that small ones of either sign have high bytes of
zero: 0, -1, 1, -2 become 0, 1, 2, 3. Without a base the difference is from zeros, which encodes a
whole model.

A blob is the letters ``EFX1``, the length of its header (uint32, little-endian), the header (the
tensors as in ``edgefed.wire.tensors``) and one zstd frame with the tensors in order: of a float32
tensor e (int16, little-endian; 32767 for bit patterns) and four byte planes, highest byte first; of
any other tensor the bytes of the newer version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from edgefed.wire.codecs import (
    Floats,
    blocks,
    is_finite,
    join,
    not_finite,
    split,
)
from edgefed.wire.tensors import (
    Array,
    Bytes,
    FrameContent,
    FrameHeader,
    Section,
    TensorSpec,
    array_from,
    check_spec,
    compressed,
    header_of,
    prefix,
    raw,
    read_specs,
    specs_of,
    total_size,
)

_MAGIC = b"EFX1"
_BITS = 0x7FFF
_FACTOR_BITS = 24  # of a float32, so that a factor times 2^e has no rounding
_FEW = slice(256)  # values that usually show already that there is no common e


def encode_exact(base: Mapping[str, Array] | None, target: Mapping[str, Array]) -> bytes:
    """Return the blob that converts ``base`` to ``target``.

    Args:
        base: the older version, with the same names, dtypes and shapes; None stands for zeros.
        target: the newer version; its order is part of the blob.

    Raises:
        WireError: ``wire.tensor`` for a dtype, shape, name or count that does not travel, or a
            base that differs in a name, dtype or shape.
    """
    specs = specs_of(target)
    for name, spec in specs_of(base or {}).items():
        check_spec(name, spec, specs.get(name))
    size = sum(part for spec in specs.values() for part in _parts(spec))
    return compressed(prefix(_MAGIC, header_of(specs)), _sections(base, target, specs), size)


def _sections(
    base: Mapping[str, Array] | None,
    target: Mapping[str, Array],
    specs: Mapping[str, TensorSpec],
) -> Iterator[Section]:
    """Yield the section of each tensor."""
    for name, array in target.items():
        parts = _parts(specs[name])
        section = np.empty(sum(parts), dtype=np.uint8)
        if specs[name].dtype == "float32":
            _write(None if base is None else _flat(base[name]), _flat(array), section)
        else:
            section[:] = np.frombuffer(raw(array), dtype=np.uint8) if section.size else 0
        yield section, parts


def apply_exact(
    blob: bytes,
    base: Mapping[str, Array] | None,
    expected: Mapping[str, TensorSpec] | None,
    *,
    max_bytes: int,
) -> dict[str, Array]:
    """Return the newer version as new arrays, in the blob's order.

    Args:
        blob: bytes made by ``encode_exact``.
        base: the older version; None stands for zeros.
        expected: the tensors that the blob must hold, in any order; None accepts any tensors.
        max_bytes: the most that the arrays may take.

    Raises:
        WireError: ``wire.tensor``, naming the difference; nothing was allocated for the tensors.
            From another base the result is another one, which only its digest shows.
    """
    header = FrameHeader(_MAGIC, blob)
    specs = read_specs(header, expected)
    header.end()
    total_size(specs, max_bytes)
    size = sum(part for spec in specs.values() for part in _parts(spec))
    content = FrameContent(header.body, size)
    arrays: dict[str, Array] = {}
    for name, spec in specs.items():
        section = content.read(sum(_parts(spec)))
        if spec.dtype == "float32":
            arrays[name] = np.empty(spec.shape, dtype=np.float32)
            _read(section, None if base is None else _flat(base[name]), arrays[name].reshape(-1))
        else:
            arrays[name] = array_from(section.data, name, spec)
    return arrays


def is_exact(blob: bytes) -> bool:
    """Return whether a blob is an exact patch."""
    return blob.startswith(_MAGIC)


def rounded(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return ``arrays`` with each float32 tensor rounded to 2^-16 of its largest magnitude.

    Its values are then multiples of a power of two, as exact patches encode best.

    Raises:
        WireError: ``wire.not_finite``, naming the tensor that holds an infinity or NaN.
    """
    return {name: _rounded(name, array) for name, array in arrays.items()}


def _rounded(name: str, array: Array) -> Array:
    if array.dtype.kind == "f" and not is_finite(array):
        raise not_finite(name)
    if array.dtype != np.float32 or not array.size:
        return array
    # All magnitudes are below 2^e of frexp, so 16 bits reach down to 2^(e - 16)
    exponent = int(np.frexp(np.abs(array).max())[1]) - 16
    # Rounding may reach 2^16, one more than 16 bits hold
    factors = np.clip(np.rint(np.ldexp(array, -exponent)), -0xFFFF, 0xFFFF)
    # The sum makes a zero of either sign the positive one, which multiples have.
    return np.asarray(np.ldexp(factors, exponent) + np.float32(0))


def _parts(spec: TensorSpec) -> tuple[int, ...]:
    """Return how many bytes one tensor takes before compression, by stretch."""
    if spec.dtype != "float32":
        return (spec.nbytes,)
    return (2 + spec.count, spec.count, spec.count, spec.count)


def _flat(array: Array) -> Floats:
    return np.asarray(array, dtype=np.float32, order="C").reshape(-1)


def _write(base: Floats | None, target: Floats, section: Bytes) -> None:
    """Write one tensor's exponent and differences into its section."""
    exponent = _exponent(base, target)
    section[:2] = np.array([exponent], dtype="<i2").view(np.uint8)
    planes = section[2:].reshape(4, -1)
    for block in blocks(target.size):
        change = _integers(target[block], exponent)
        if base is not None:
            change -= _integers(base[block], exponent)
        # The sign becomes the lowest bit; differences wrap modulo 2^32, as the sums of readers do
        split(((change << 1) ^ (change >> 31)).view(np.uint32), planes[:, block])


def _read(section: Bytes, base: Floats | None, out: Floats) -> None:
    """Add the differences in a section to the base."""
    exponent = int(section[:2].view("<i2")[0])
    planes = section[2:].reshape(4, -1)
    for block in blocks(out.size):
        folded = join(planes[:, block])
        change = (folded >> np.uint32(1)).view(np.int32) ^ -(folded & np.uint32(1)).view(np.int32)
        if base is not None:
            change += _integers(base[block], exponent)
        if exponent == _BITS:
            out[block] = change.view(np.float32)
        else:
            with np.errstate(over="ignore"):  # an exponent that no sender writes
                out[block] = np.ldexp(change.astype(np.float32), exponent)


def _integers(values: Floats, exponent: int) -> npt.NDArray[np.int32]:
    """Return the values as multiples of 2^exponent, or their bit patterns, as a new array."""
    if exponent == _BITS:
        return values.view(np.int32).copy()
    with np.errstate(over="ignore", invalid="ignore"):  # a base that is not of the grid
        return np.ldexp(values, -exponent).astype(np.int32)


def _exponent(base: Floats | None, target: Floats) -> int:
    """Return the largest e for which all values are multiples of 2^e, or ``_BITS``."""
    least, most = 128, -150
    for values in (target,) if base is None else (target, base):
        for block in (_FEW, *blocks(values.size)):
            part = values[block]
            # Multiples have one zero, and neither infinities nor NaN
            if not np.isfinite(part).all() or (np.signbit(part) & (part == 0)).any():
                return _BITS
            fractions, exponents = np.frexp(part[part != 0])
            if not fractions.size:
                continue
            # A fraction of a float32 has 24 bits, so these are whole numbers
            factors = np.ldexp(fractions, _FACTOR_BITS).astype(np.int32)
            # factors & -factors leaves the lowest bit that is set, which frexp gives the place of
            lowest = np.frexp((factors & -factors).astype(np.float32))[1] - 1 - _FACTOR_BITS
            least = min(least, int((lowest + exponents).min()))
            most = max(most, int(exponents.max()))
            if most - least > _FACTOR_BITS:
                return _BITS
    return least
