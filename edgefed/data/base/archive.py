"""Read the arrays of an NPZ file without pickle, after checking the total size.

NumPy's own reader allocates any size that an array's header declares.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgefed.data.base.limits import COLUMN_BYTES, VALUE_BYTES, check_bytes
from edgefed.data.base.paths import require_file
from edgefed.data.base.types import Array
from edgefed.errors import DataError, EdgeFedError, StorageError
from edgefed.files.mapped import unpacked
from edgefed.files.writing import free_bytes

HEADER_BYTES = 12_000
"""Longest header of an array that is looked at; NumPy takes one of up to 10,000 characters."""

COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)
"""The methods of ``numpy.savez`` and ``savez_compressed``, and LZMA, which other programs use.

A few bytes of bzip2 unpack to 45,000 times their size, so it is refused.
"""

PIECE_BYTES = 4096
"""Most compressed bytes unpacked at a time; ``zipfile`` holds their entire output."""

LARGE_BYTES = 2**24
"""An array of fewer bytes is held in memory."""

SUFFIX = ".npy"

_FORMAT: Any = np.lib.format
_HEADERS = {
    (1, 0): _FORMAT.read_array_header_1_0,
    (2, 0): _FORMAT.read_array_header_2_0,
}


@dataclass(frozen=True)
class _Declared:
    """The declaration in the header of an array.

    Attributes:
        by_columns: whether the first index changes fastest.
        start: bytes before the first value.
    """

    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]
    start: int

    @property
    def values(self) -> int:
        """Number of values."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of all values."""
        return self.values * self.dtype.itemsize


def read_arrays(
    path: Path,
    known: Collection[str],
    max_bytes: int,
    columns: tuple[str, ...] = (),
    scratch: Path | None = None,
) -> dict[str, Array]:
    """Return the file's arrays that have a known name; the others stay on disk.

    Names that begin with ``x`` are inputs, whose values count as float32.

    Args:
        path: the file.
        known: names.
        max_bytes: most memory that the arrays may take.
        columns: beginnings of further names: of columns, whose values count as int64.
        scratch: large arrays are mapped files without a name in this folder, if the disk has room;
            None for arrays in memory.

    Raises:
        DataError: ``data.too_large``, or the file is missing or damaged.
    """
    require_file(path)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(SUFFIX): info for info in archive.infolist()}
            members = {
                name: info
                for name, info in members.items()
                if name in known or name.startswith(columns)
            }
            _check(archive, members, path, max_bytes, columns)
            scratch = _with_room(scratch, members)
            return {name: _read(archive, info, scratch) for name, info in members.items()}
    except EdgeFedError:
        raise
    except zipfile.BadZipFile as error:
        reason = "it is a single array, damaged, or another kind of file"
        raise _unreadable(path, f"{reason} ({error})") from error
    # Zip files and headers can be wrong in more ways than their readers tell apart.
    except Exception as error:
        raise _unreadable(path, str(error) or type(error).__name__) from error


def _check(
    archive: zipfile.ZipFile,
    members: Mapping[str, zipfile.ZipInfo],
    path: Path,
    max_bytes: int,
    columns: tuple[str, ...],
) -> None:
    needed = 0
    for name, info in members.items():
        declared = _declared(archive, info)
        value = COLUMN_BYTES if name.startswith(columns) else VALUE_BYTES * name.startswith("x")
        needed += max(declared.bytes, declared.values * value)
    check_bytes(needed, max_bytes, str(path))


def _declared(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Declared:
    """Return the declaration of an array.

    Raises:
        ValueError: it is none that NumPy writes for plain arrays, or the file holds less.
    """
    if info.compress_type not in COMPRESSIONS:
        raise ValueError(f"{info.filename} is neither stored, deflated nor LZMA-compressed")
    with archive.open(info) as member:
        start = io.BytesIO(_Pieces(member).read(HEADER_BYTES))
    version = _FORMAT.read_magic(start)
    if version not in _HEADERS:
        raise ValueError(f"{info.filename} is of version {version}, which is not a plain array")
    shape, by_columns, dtype = _HEADERS[version](start)
    if any(side < 0 for side in shape):
        raise ValueError(f"{info.filename} has a negative dimension")
    declared = _Declared(shape, by_columns, dtype, start.tell())
    if not dtype.hasobject and declared.bytes > info.file_size - start.tell():
        held = f"the file holds {info.file_size - start.tell()}"
        raise ValueError(f"{info.filename} declares {declared.bytes} bytes, but {held}")
    return declared


def _with_room(scratch: Path | None, members: Mapping[str, zipfile.ZipInfo]) -> Path | None:
    """Return a folder if all large arrays take at most a quarter of its free disk, or None.

    The data set's entry in the cache, which is as large, may take half of what is then free.
    """
    large = sum(info.file_size for info in members.values() if info.file_size >= LARGE_BYTES)
    with suppress(StorageError):
        if scratch is not None and 4 * large <= free_bytes(scratch):
            return scratch
    return None


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo, scratch: Path | None) -> Array:
    if scratch is not None and info.file_size >= LARGE_BYTES:
        array = _mapped(archive, info, scratch)
        if array is not None:
            return array
    with archive.open(info) as member:
        read: Array = _FORMAT.read_array(_Pieces(member), allow_pickle=False)
    return read


def _mapped(archive: zipfile.ZipFile, info: zipfile.ZipInfo, scratch: Path) -> Array | None:
    """Return an array in a file without a name; None for one that is better read to memory."""
    declared = _declared(archive, info)
    if declared.dtype.hasobject or declared.by_columns or not declared.bytes:
        return None

    def fill(file: IO[bytes]) -> None:
        with archive.open(info) as member:
            _Pieces(member).read(declared.start)
            left = declared.bytes
            while piece := member.read(min(PIECE_BYTES, left)):
                file.write(piece)
                left -= len(piece)
            # At a member's end, its checksum is compared
            if left or member.read(1):
                raise ValueError(f"{info.filename} holds other than its {declared.bytes} bytes")

    return unpacked(scratch, declared.shape, declared.dtype, fill)


class _Pieces:
    """A member of the archive that is unpacked in small pieces, however much is asked for."""

    def __init__(self, member: IO[bytes]) -> None:
        self._member = member

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, or the rest of the member."""
        held = bytearray()
        while len(held) < size and (piece := self._member.read(min(PIECE_BYTES, size - len(held)))):
            held += piece
        return bytes(held)


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(
        f"{path} cannot be read as an NPZ file: {reason[:300]}.",
        code="data.unreadable",
        hint="write it with numpy.savez(file, x_train=…, y_train=…), plain arrays only",
    )
