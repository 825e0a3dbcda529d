"""The free memory of this machine or of the container's limit."""

from __future__ import annotations

from pathlib import Path

import psutil

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
