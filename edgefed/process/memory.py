"""The memory of this machine: the free bytes, and the release of unused memory."""

from __future__ import annotations

import ctypes
import gc
import mmap
from contextlib import suppress
from pathlib import Path

import psutil

LARGE = 16 * 1024**2
"""Bytes of an answer after whose training freed memory is returned. Small layers leave it in pieces
that the C library keeps, several times the model's size."""

_M_MMAP_THRESHOLD = -3
"""The parameter's number in ``malloc.h``."""

CONTAINER = Path("/sys/fs/cgroup")
"""Where a container sees its own limits (cgroup v2)."""


def free_memory(container: Path = CONTAINER) -> int:
    """Return the bytes left before the system or the container is out of memory."""
    free = int(psutil.virtual_memory().available)
    most, used = _number(container / "memory.max"), _number(container / "memory.current")
    return free if most is None or used is None else max(0, min(free, most - used))


def _number(path: Path) -> int | None:
    """Return the number in a file; None for a word such as ``max``, or where there is no file."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def release_memory() -> None:
    """Collect unused objects, and return the freed memory that the C library keeps.

    Python collects objects that refer to each other only now and then. glibc keeps freed memory for
    later, even if only one block at its end is still in use. Other C libraries have other rules;
    there only the objects are collected.
    """
    gc.collect()
    return_freed()


def return_freed() -> None:
    """Return the freed memory that the C library keeps, where it is glibc; takes milliseconds."""
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def map_large_blocks() -> None:
    """Have glibc map each block of 1 MiB and more, so that it returns to the system once freed.

    Otherwise, a large block that was freed raises glibc's limit, and the next ones stay in pieces.
    Programs that allocate such blocks over and over are slower with it, such as training.
    """
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 2**20)


def discard_pages(address: int, size: int) -> None:
    """Return the whole pages of a block of memory to the system; their values become undefined.

    The block stays allocated: a page takes memory again when it is written. On Linux, discarded
    pages of private memory are zero. Elsewhere nothing is discarded.
    """
    # Start rounded up, end down: a page that is shared with a neighbour stays
    start, end = -(-address // mmap.PAGESIZE), (address + size) // mmap.PAGESIZE
    if end > start and hasattr(mmap, "MADV_DONTNEED"):
        with suppress(AttributeError, OSError):
            advise = ctypes.CDLL(None).madvise
            advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
            page = mmap.PAGESIZE
            advise(start * page, (end - start) * page, mmap.MADV_DONTNEED)
