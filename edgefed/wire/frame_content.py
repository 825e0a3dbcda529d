"""The zstd frame of a coded blob, written and read section by section, never as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import numpy as np
import numpy.typing as npt
import zstandard

from edgefed.errors import WireError
from edgefed.wire.frame import malformed

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
