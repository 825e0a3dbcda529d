"""The memory of this machine: how much is free, and giving back what this process uses no more."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from pathlib import Path

import psutil

CONTAINER = Path("/sys/fs/cgroup")
"""Where a container sees its own limits (cgroup v2)."""


def free_memory(container: Path = CONTAINER) -> int:
    """Return how many bytes can be taken before the system or the container is out of memory."""
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
    """Collect unused objects, and return what the C library keeps of freed memory.

    Python collects objects that refer to each other only now and then. glibc keeps freed memory for
    later, also where one block in use at its end is all that is left. Other C libraries have other
    rules; there only the objects are collected.
    """
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
