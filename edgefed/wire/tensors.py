"""Named tensors as canonical bytes: equal arrays give equal blobs and therefore equal digests.

A packed blob is the letters ``EFT1``, the length of its header (uint32, little-endian), the header
(msgpack array of [name, dtype, shape] for each tensor) and each tensor's bytes, little-endian, in C
order, in the header's order and without gaps.

Coded blobs have the same frame: four letters, the length of the header, the header and a body. The
body of a coded blob is a zstd frame, which is written and read section by section, never as a
whole.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
import zstandard

from edgefed.errors import WireError
from edgefed.wire import limits

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


MAX_NAME = 256
"""Longest name of a tensor, in bytes of UTF-8."""

MAX_HEADER_BYTES = 1 << 21
"""Longest header of a blob."""

_LENGTH = struct.Struct("<I")


def prefix(magic: bytes, *header: Any) -> bytes:
    """Return the part of a blob before its body: ``magic``, and the header's values in a row."""
    packed = b"".join(msgpack.packb(value) for value in header)
    if len(packed) > MAX_HEADER_BYTES:
        raise malformed("the names of its tensors are too long")
    return magic + _LENGTH.pack(len(packed)) + packed


class FrameHeader:
    """Reads a blob's header value by value, so that only requested values are built.

    Args:
        magic: the four letters that the blob must begin with.
        blob: the whole blob.

    Raises:
        WireError: ``wire.tensor`` when it is not a blob of that kind.
    """

    def __init__(self, magic: bytes, blob: bytes | memoryview) -> None:
        start = len(magic) + _LENGTH.size
        if len(blob) < start or blob[: len(magic)] != magic:
            raise malformed("it does not begin as one")
        self._length = _LENGTH.unpack_from(blob, len(magic))[0]
        if self._length > MAX_HEADER_BYTES or start + self._length > len(blob):
            raise malformed("its header is cut off or too long")
        self.body = memoryview(blob)[start + self._length :]
        # No array or map is ever unpacked as one value: its length is read, then each of its items.
        self._values = msgpack.Unpacker(
            read_size=4096,
            max_buffer_size=MAX_HEADER_BYTES,
            max_str_len=MAX_NAME,
            max_bin_len=0,
            max_array_len=0,
            max_map_len=0,
            max_ext_len=0,
        )
        self._values.feed(memoryview(blob)[start : start + self._length])

    def text(self) -> str:
        """Read a text."""
        value = self._value()
        if type(value) is not str:
            raise malformed("its header holds no text where one belongs")
        return value

    def number(self) -> int:
        """Read a number that is not negative."""
        value = self._value()
        if type(value) is not int or value < 0:
            raise malformed("its header holds no number where one belongs")
        return value

    def items(self, most: int) -> int:
        """Read the length of an array of at most ``most`` items."""
        try:
            length: int = self._values.read_array_header()
        except (ValueError, msgpack.UnpackException) as error:
            raise malformed("its header cannot be read") from error
        if length > most:
            raise malformed(f"a list in its header has {length} items")
        return length

    def end(self) -> None:
        """Check that the header was read to its end."""
        if self._values.tell() != self._length:
            raise malformed("its header is too long")

    def _value(self) -> Any:
        try:
            return self._values.unpack()
        except (ValueError, msgpack.UnpackException) as error:
            raise malformed("its header cannot be read") from error


def malformed(reason: str) -> WireError:
    """Return the error for bytes that are not a blob of tensors."""
    return WireError(f"A blob of tensors cannot be used: {reason}.", code="wire.tensor")


def check_body(body: memoryview, size: int) -> None:
    """Check that a body has exactly ``size`` bytes."""
    if len(body) != size or size > limits.MAX_BLOB_BYTES:
        raise malformed(f"its tensors have {len(body)} bytes instead of {size}")


Bytes = npt.NDArray[np.uint8]

LEVEL = 1  # higher levels take longer and save nothing on byte planes and rounded multiples

LEAST_BLOCK = 1024
"""Fewest bytes with a table of codes of their own, which costs about 100."""

Section = tuple[Bytes, Sequence[int]]
"""Bytes, and the lengths of their stretches of unlike ones."""

LARGE = 1 << 20
"""Bytes of a frame's content from which on two threads are quicker than one."""

MAX_WINDOW = 8 * 1024 * 1024
"""Largest window of a frame, which decoding keeps in memory: what RFC 8878 asks of any decoder."""


def compressed(head: bytes, sections: Iterator[Section], size: int) -> bytes:
    """Return ``head`` and the zstd frame of sections that have ``size`` bytes together.

    Each stretch begins a block, which has codes of its own.
    """
    out = BytesIO()
    out.write(head)
    deflater = zstandard.ZstdCompressor(level=LEVEL).compressobj(size=size)
    pending = 0
    for section, parts in sections if size < LARGE else _ahead(sections):
        start = 0
        for part in parts:
            out.write(deflater.compress(section[start : start + part].data))
            start += part
            pending += part
            if pending >= LEAST_BLOCK:
                out.write(deflater.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))
                pending = 0
    out.write(deflater.flush())
    return out.getvalue()


def _ahead(sections: Iterator[Section]) -> Iterator[Section]:
    """Yield sections; while one is used, another thread makes the next one.

    Coding and compression release the interpreter, so that they take place on two cores.
    """
    with ThreadPoolExecutor(1) as coding:
        coming = coding.submit(next, sections, None)
        while (section := coming.result()) is not None:
            coming = coding.submit(next, sections, None)
            yield section


class FrameContent:
    """Reads the content of a zstd frame that holds exactly ``size`` bytes.

    The frame says its size before anything is allocated, and is refused when it says another.

    Args:
        body: the frame and nothing else.
        size: of the content.

    Raises:
        WireError: ``wire.tensor`` for any other bytes, here or while they are read.
    """

    def __init__(self, body: memoryview, size: int) -> None:
        try:
            if zstandard.frame_content_size(body) != size:
                raise _wrong_length()
            # Nothing may follow the frame
            if _frame_size(body) != len(body):
                raise _damaged()
            inflater = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW)
            self._reader = inflater.stream_reader(body)
        except zstandard.ZstdError as error:
            raise _damaged() from error

    def read(self, size: int) -> Bytes:
        """Return the next ``size`` bytes."""
        section = np.empty(size, dtype=np.uint8)
        rest = section.data
        try:
            while rest:
                count = self._reader.readinto(rest)
                if not count:
                    raise _wrong_length()
                rest = rest[count:]
        except zstandard.ZstdError as error:
            raise _damaged() from error
        return section


def _frame_size(body: memoryview) -> int:
    """Return how many bytes the zstd frame has that ``body`` begins with (RFC 8878)."""
    position, last = zstandard.frame_header_size(body), False
    while not last:
        block = int.from_bytes(body[position : position + 3], "little")
        if position + 3 > len(body):
            raise _damaged()
        last, repeated = bool(block & 1), block >> 1 & 3 == 1  # such a byte is stored once
        position += 3 + (1 if repeated else block >> 3)
    # A checksum of four bytes may follow the last block
    return position + 4 * zstandard.get_frame_parameters(body).has_checksum


def _damaged() -> WireError:
    return malformed("its compressed part is damaged")


def _wrong_length() -> WireError:
    return malformed("its compressed part is not as long as its tensors")
