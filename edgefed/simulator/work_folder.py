"""The folder of a simulation at work, in its run's: its blobs, and a lock held while it lives."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefed.lock import FolderLock, is_locked

_NAME = "work"


@contextmanager
def work_folder(run_folder: Path) -> Iterator[Path]:
    """Create the folder, hold its lock, and remove it at the end.

    Simulations that share a folder of blobs would delete each other's.
    """
    folder = run_folder / _NAME
    lock = FolderLock(folder, "a simulation")
    try:
        yield folder
    finally:
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


def is_at_work(run_folder: Path) -> bool:
    """Whether the simulation of a run lives; one that was killed has left its row unfinished."""
    return is_locked(run_folder / _NAME)
