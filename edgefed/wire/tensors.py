"""Named tensors as canonical bytes: equal arrays give equal blobs and therefore equal digests.

A packed blob is the letters ``EFT1``, the length of its header (uint32, little-endian), the header
(msgpack array of [name, dtype, shape] for each tensor) and each tensor's bytes, little-endian, in C
order, in the header's order and without gaps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefed.wire import limits
from edgefed.wire.frame import MAX_NAME, FrameHeader, check_body, malformed, prefix

Array = npt.NDArray[Any]

_MAGIC = b"EFT1"
DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("float32", "float16", "float64", "int64", "int32", "int8", "uint8", "bool")
}
"""The dtypes that travel, as they lie in a blob."""


@dataclass(frozen=True)
class TensorSpec:
    """The expected form of a tensor: the name of its dtype, and its shape.

    Raises:
        WireError: ``wire.tensor`` for a dtype that does not travel or a shape that is too large.
    """

    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise malformed(f"tensors of dtype {self.dtype[:40]!r} do not travel")
        if len(self.shape) > limits.MAX_DIMENSIONS:
            raise malformed(f"a tensor has {len(self.shape)} dimensions")
        # An empty dimension must not hide how large the others are.
        extent = math.prod(max(1, length) for length in self.shape)
        if extent * DTYPES[self.dtype].itemsize > limits.MAX_BLOB_BYTES:
            raise malformed("a tensor is too large")

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return self.count * DTYPES[self.dtype].itemsize


@lru_cache(maxsize=64)
def _name_of(dtype: np.dtype[Any]) -> str:
    return dtype.newbyteorder("=").name


def specs_of(arrays: Mapping[str, Array]) -> dict[str, TensorSpec]:
    """Return the spec of each array, in the arrays' order."""
    return {
        name: TensorSpec(_name_of(array.dtype), tuple(array.shape))
        for name, array in arrays.items()
    }


def pack(arrays: Mapping[str, Array]) -> bytes:
    """Return the canonical blob of ``arrays``; their order is kept and is part of it.

    Raises:
        WireError: ``wire.tensor`` for a dtype, shape, name or count that does not travel.
    """
    return b"".join(packed_pieces(arrays))


def unpack(
    blob: bytes | memoryview,
    expected: Mapping[str, TensorSpec] | None,
    *,
    max_bytes: int = limits.MAX_BLOB_BYTES,
    wanted: Callable[[str], bool] = lambda name: True,
    copied: bool = True,
) -> dict[str, Array]:
    """Return the arrays in ``blob``, in its order.

    Args:
        blob: bytes made by ``pack``.
        expected: the tensors that the blob must hold, in any order; None accepts any tensors.
        max_bytes: the most that the arrays may take.
        wanted: whether the array of a name is returned.
        copied: whether arrays own their memory and are writable; otherwise they are views of the
            blob, which may be unaligned.

    Raises:
        WireError: ``wire.tensor``, naming the difference; nothing was allocated for the tensors.
    """
    header = FrameHeader(_MAGIC, blob)
    specs = read_specs(header, expected)
    header.end()
    check_body(header.body, total_size(specs, max_bytes))
    arrays = {}
    start = 0
    for name, spec in specs.items():
        if wanted(name):
            data = header.body[start : start + spec.nbytes]
            arrays[name] = array_from(data, name, spec, copied=copied)
        start += spec.nbytes
    return arrays


def packed_names(blob: bytes | memoryview) -> tuple[str, ...]:
    """Return the names of the arrays in a blob that ``pack`` made."""
    return tuple(read_specs(FrameHeader(_MAGIC, blob), None))


def digest(data: bytes) -> str:
    """Return the name of a blob: its SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def weights_digest(arrays: Mapping[str, Array]) -> str:
    """Return ``digest(pack(arrays))`` without building the blob."""
    sha = hashlib.sha256()
    for piece in packed_pieces(arrays):
        sha.update(piece)
    return sha.hexdigest()


def header_of(specs: Mapping[str, TensorSpec]) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return the header's entry for each tensor."""
    if len(specs) > limits.MAX_TENSORS:
        raise malformed(f"it has {len(specs)} tensors")
    for name in specs:
        if len(name.encode()) > MAX_NAME:
            raise malformed(f"the tensor name {name[:40]!r}… is too long")
    return [(name, spec.dtype, spec.shape) for name, spec in specs.items()]


def read_specs(
    header: FrameHeader, expected: Mapping[str, TensorSpec] | None
) -> dict[str, TensorSpec]:
    """Read the tensors' specs from a header, and compare them with the expected ones."""
    specs: dict[str, TensorSpec] = {}
    for _ in range(header.items(limits.MAX_TENSORS)):
        if header.items(3) != 3:
            raise malformed("its header describes a tensor by other than name, dtype, shape")
        name, dtype = header.text(), header.text()
        shape = tuple(header.number() for _ in range(header.items(limits.MAX_DIMENSIONS)))
        if name in specs:
            raise malformed(f"the tensor {name!r} appears twice")
        specs[name] = TensorSpec(dtype, shape)
        if expected is not None:
            check_spec(name, specs[name], expected.get(name))
    if expected is not None and len(specs) != len(expected):
        missing = next(name for name in expected if name not in specs)
        raise malformed(f"the tensor {missing!r} is missing")
    return specs


def check_spec(name: str, actual: TensorSpec, wanted: TensorSpec | None) -> None:
    """Check that a tensor is the expected one.

    Raises:
        WireError: ``wire.tensor``, naming the tensor and the difference.
    """
    if wanted is None:
        raise malformed(f"the tensor {name!r} is not expected")
    if actual != wanted:
        raise malformed(
            f"the tensor {name!r} is {actual.dtype}{list(actual.shape)}"
            f" instead of {wanted.dtype}{list(wanted.shape)}"
        )


def total_size(specs: Mapping[str, TensorSpec], max_bytes: int) -> int:
    """Return how many bytes all tensors take, at most ``max_bytes``."""
    size = sum(spec.nbytes for spec in specs.values())
    if size > max_bytes:
        raise malformed(f"its tensors take {size} bytes, and {max_bytes} are allowed")
    return size


def raw(array: Array) -> memoryview:
    """Return an array's bytes in wire order; no copy if memory has the same order."""
    dtype = DTYPES[_name_of(array.dtype)]
    return np.asarray(array, dtype=dtype, order="C").reshape(-1).view(np.uint8).data


def array_from(data: memoryview, name: str, spec: TensorSpec, *, copied: bool = True) -> Array:
    """Return an array of the bytes of one tensor, which must be as many as it has; see `unpack`."""
    if not spec.count:
        # An empty tensor has no buffer to read
        return np.empty(spec.shape, dtype=spec.dtype)
    if spec.dtype == "bool" and np.frombuffer(data, dtype=np.uint8).max() > 1:
        raise malformed(f"the tensor {name!r} holds a truth value other than 0 and 1")
    flat = np.frombuffer(data, dtype=DTYPES[spec.dtype])
    return flat.astype(np.dtype(spec.dtype), copy=copied).reshape(spec.shape)


def packed_pieces(arrays: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    """Yield the parts of ``pack(arrays)``: its header, and the bytes of each array."""
    specs = specs_of(arrays)
    yield prefix(_MAGIC, header_of(specs))
    for array in arrays.values():
        yield raw(array)
