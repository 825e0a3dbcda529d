"""Where simulations lie in a state folder, and the folder of one at work: its blobs, and a lock."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from edgefed.process.lock import FolderLock, is_locked

SIMULATIONS = "simulations"
"""The folder in a state folder that has the runs of simulations."""

_NAME = "work"


def work_path(run_folder: Path) -> Path:
    """Return the folder of a simulation at work."""
    return run_folder / _NAME


@contextmanager
def work_folder(run_folder: Path, is_needed: Callable[[], bool] = lambda: False) -> Iterator[Path]:
    """Create the folder, hold its lock, and remove it at the end, unless it is needed then.

    Simulations that share a folder of blobs would delete each other's.
    """
    folder = work_path(run_folder)
    lock = FolderLock(folder, "a simulation")
    try:
        yield folder
    finally:
        lock.release()
        if not is_needed():
            shutil.rmtree(folder, ignore_errors=True)


def is_at_work(run_folder: Path) -> bool:
    """Whether the simulation of a run lives; one that was killed has left its row unfinished."""
    return is_locked(work_path(run_folder))
