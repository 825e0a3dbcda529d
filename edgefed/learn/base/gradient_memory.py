"""Keep the memory of a step's gradients in the process, so that the next step need not map it."""

from __future__ import annotations

import torch

LEAST, MOST = 2**20, 31 * 2**20
"""Bytes from which on it matters, and of the largest block that glibc learns from."""


def keep_freed(size: int) -> None:
    """Make the C library keep about twice ``size`` freed bytes, 62 MiB at most.

    glibc returns free memory at the end of its heap to the system, and gets it back page by page:
    where the gradients of several models are freed at once, that takes several percent of a step.
    When a mapped block is freed, glibc raises the limit to twice its size. The block here is never
    touched, so it takes no memory. Other C libraries have other rules, and are not affected.

    Args:
        size: bytes of the gradients.
    """
    if size >= LEAST:
        torch.empty(min(size, MOST), dtype=torch.uint8)
