"""Arrays in mapped files, whose pages can be taken out of a process's memory."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from edgefed.errors import StorageError
from edgefed.files.writing import make_folder

Array = npt.NDArray[Any]

BLOCK_BYTES = 2**20
"""Bytes of an array or a file that are read at a time."""

ROWS = 4
"""Rows that are copied between two releases; for each, the kernel may map 2 MiB of the file."""

_VIEWS = (np.ndarray, memoryview)
"""Objects that may show the memory of another one."""

_maps: WeakSet[mmap.mmap] = WeakSet()
"""The maps of this process."""


def opened(path: Path) -> np.memmap[Any, Any]:
    """Return the array of an NPY file, mapped; changes of it stay in this process.

    Raises:
        OSError, ValueError, EOFError: the file cannot be read.
    """
    mapped: np.memmap[Any, Any] = np.load(path, mmap_mode="c", allow_pickle=False)
    _maps.add(_map_of(mapped))
    return mapped


def opened_bytes(path: Path) -> npt.NDArray[np.uint8]:
    """Return the bytes of a file that is not empty, mapped; changes of them stay in this process.

    Raises:
        OSError: the file cannot be read.
    """
    mapped = np.memmap(path, np.uint8, "c")
    _maps.add(_map_of(mapped))
    return np.asarray(mapped)


def unpacked(
    folder: Path, shape: tuple[int, ...], dtype: np.dtype[Any], fill: Callable[[IO[bytes]], None]
) -> Array | None:
    """Return an array in a file without a name, which ends with the array.

    Changes of it stay in this process.

    Args:
        folder: on the disk that takes the file.
        shape: of the array, in C order; it has values.
        dtype: of its values.
        fill: writes the array's bytes; its errors, but an `OSError`, are raised.

    Returns:
        None if the disk does not take the file.
    """
    try:
        with tempfile.TemporaryFile(dir=make_folder(folder)) as file:
            fill(file)
            file.flush()
            mapped = np.memmap(file, dtype, "c", shape=shape)
    except (OSError, StorageError):
        return None
    _maps.add(_map_of(mapped))
    return np.asarray(mapped)


def release(array: Array) -> bool:
    """Take the pages of a mapped array out of this process's memory.

    It is one file's, and so may be other arrays. Pages are mapped again when they are read, as they
    are in the file: changes of these arrays are lost.

    Returns:
        False for any other array, which stays as it is.
    """
    mapped = _map_of(array)
    if not isinstance(mapped, mmap.mmap) or mapped not in _maps:
        return False
    mapped.madvise(mmap.MADV_DONTNEED)
    return True


def copied_rows(array: Array, index: npt.NDArray[np.int64]) -> Array | None:
    """Return rows of a mapped array, which is released; None for any other array."""
    if not release(array):
        return None
    rows = np.empty((len(index), *array.shape[1:]), array.dtype)
    for start in range(0, len(index), ROWS):
        rows[start : start + ROWS] = array[index[start : start + ROWS]]
        release(array)
    return rows


def blocks(array: Array) -> Iterator[memoryview]:
    """Yield the bytes of a contiguous array block by block.

    A mapped array, which was not changed, is released after each block. A block is therefore read
    before the next one is taken.
    """
    flat = array.reshape(-1).view(np.uint8)
    for start in range(0, len(flat), BLOCK_BYTES):
        yield flat[start : start + BLOCK_BYTES].data
        release(flat)


def _map_of(array: Array) -> Any:
    """Return the object that holds an array's memory; None where numpy does."""
    base: Any = array
    while isinstance(base, _VIEWS):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    return base
