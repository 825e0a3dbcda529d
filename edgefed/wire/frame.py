"""The frame of a binary blob: four letters, the length of its msgpack header, header, body."""

from __future__ import annotations

import struct
from typing import Any

import msgpack

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

    def __init__(self, magic: bytes, blob: bytes) -> None:
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
