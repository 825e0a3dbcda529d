"""The frame of a binary blob: four letters, the length of its msgpack header, header, body.

The body of a coded blob is a zstd frame, which is written and read section by section, never as a
whole.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
import zstandard

from edgefed.errors import WireError
from edgefed.wire import limits

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
