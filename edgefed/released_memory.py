"""Return unused memory to the system."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress


def release_memory() -> None:
    """Collect unused objects, and return the freed memory that the C library keeps.

    Python collects objects that refer to each other only now and then. glibc keeps freed memory for
    later, even if only one block at its end is still in use. Other C libraries have other rules;
    there only the objects are collected.
    """
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
