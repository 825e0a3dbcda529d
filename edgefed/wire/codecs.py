"""Codecs: compress named tensors, such as weights and their differences, for the wire.

An encoded blob is the letters ``EFC1``, the length of its header (uint32, little-endian), the
header (the codec's name and the tensors as in ``edgefed.wire.tensors``) and one zstd frame. The
frame holds the tensors in order: float32 as the codec encodes it (``edgefed.wire.coders``), all
other dtypes unchanged, because counts and masks must not be rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import zstandard

from edgefed.errors import WireError
from edgefed.wire import limits
from edgefed.wire.coders import BFloat16, Bytes, Coder, Exact, Int8, is_finite
from edgefed.wire.frame import Header, malformed, prefix
from edgefed.wire.tensors import (
    Array,
    TensorSpec,
    array_from,
    header_of,
    raw,
    read_specs,
    specs_of,
    total_size,
)

_MAGIC = b"EFC1"
_LEVEL = 1  # higher levels take longer and save nothing on byte planes and rounded multiples


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
        content = np.empty(_content_size(self.coder, specs), dtype=np.uint8)
        start = 0
        for name, array in arrays.items():
            if array.dtype.kind == "f" and not is_finite(array):
                raise _not_finite(name)
            section = content[start : start + _section_size(self.coder, specs[name])]
            self._write(array, specs[name], section, rng)
            start += section.size
        return head + zstandard.ZstdCompressor(level=_LEVEL).compress(content.data)

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
    {coder.name: Codec(coder) for coder in (Exact(), BFloat16(), Int8())}
)
"""Every codec by its name: ``fp32`` (lossless), ``bf16``, ``int8``."""


def decode(
    blob: bytes,
    expected: Mapping[str, TensorSpec] | None,
    *,
    max_bytes: int = limits.MAX_BLOB_BYTES,
) -> dict[str, Array]:
    """Return the tensors in a coded blob, whichever codec wrote it, in the blob's order.

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
    header = Header(_MAGIC, blob)
    coder = _coder(header.text())
    specs = read_specs(header, expected)
    header.end()
    total_size(specs, max_bytes)
    content = np.frombuffer(_inflate(header.body, _content_size(coder, specs)), dtype=np.uint8)
    arrays = {}
    start = 0
    for name, spec in specs.items():
        section = content[start : start + _section_size(coder, spec)]
        arrays[name] = _read(coder, section, name, spec)
        start += section.size
    return arrays


def _read(coder: Coder, section: Bytes, name: str, spec: TensorSpec) -> Array:
    """Return the tensor in its section."""
    if spec.dtype != "float32":
        array = array_from(section.data, name, spec)
        finite = array.dtype.kind != "f" or is_finite(array)
    else:
        array = np.empty(spec.shape, dtype=np.float32)
        finite = coder.restore(section, array.reshape(-1))
    if not finite:
        raise _not_finite(name)
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


def _section_size(coder: Coder, spec: TensorSpec) -> int:
    """Return how many bytes one tensor takes before compression."""
    return coder.size(spec.count) if spec.dtype == "float32" else spec.nbytes


def _content_size(coder: Coder, specs: Mapping[str, TensorSpec]) -> int:
    """Return how many bytes all tensors take before compression."""
    size = sum(_section_size(coder, spec) for spec in specs.values())
    if size > limits.MAX_BLOB_BYTES:
        raise malformed(f"its tensors take {size} bytes")
    return size


def _inflate(body: memoryview, size: int) -> bytes:
    """Return the content of a zstd frame that holds exactly ``size`` bytes.

    The frame says its size before anything is allocated, and is refused when it says another.
    """
    try:
        if zstandard.frame_content_size(body) != size:
            raise malformed("its compressed part is not as long as its tensors")
        inflater = zstandard.ZstdDecompressor()
        content = inflater.decompress(body, max_output_size=size, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise malformed("its compressed part is damaged") from error
    if len(content) != size:
        raise malformed("its compressed part is not as long as its tensors")
    return content


def _not_finite(name: str) -> WireError:
    """Return the error for a tensor with an infinity or NaN."""
    return WireError(
        f"The tensor {name!r} holds a value that is not finite.",
        code="wire.not_finite",
        hint="training diverged: lower the learning rate or clip gradients",
    )
