"""Give the memory of what nobody uses any more back to the system."""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress


def release_memory() -> None:
    """Collect unused objects, and return what the C library keeps of freed memory.

    Python collects objects that refer to each other only now and then. glibc keeps freed memory for
    later, also where one block in use at its end is all that is left. Other C libraries have other
    rules; there only the objects are collected.
    """
    gc.collect()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
