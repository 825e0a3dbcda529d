"""The caches below a state folder: their entries, and the removal of these.

All of it can be made again: decoded and prepared data sets, and natural noise. The blobs of a
coordinator or a device are no cache in this sense, because a run may need them.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgefed.data.base.paths import DECODED
from edgefed.files.writing import file_states, storage_error
from edgefed.natural_noise.cache import SUFFIX
from edgefed.process.lock import is_locked

NOISE = "noise"
"""Name of the folders of natural noise."""


@dataclass(frozen=True)
class CacheEntry:
    """A file or folder of a cache, which is removed as one.

    Attributes:
        kind: ``decoded data`` or ``natural noise``.
        path: its file or folder.
        bytes: of its files.
        used: the second since 1970 at which it was last used.
    """

    kind: str
    path: Path
    bytes: int
    used: float


def cache_entries(state: Path) -> list[CacheEntry]:
    """Return the entries of all caches below a state folder, those unused for longest first."""
    entries = (_entry(kind, path) for kind, path in _paths(state))
    return sorted((entry for entry in entries if entry.bytes), key=lambda entry: entry.used)


def remove_entry(entry: CacheEntry) -> bool:
    """Remove an entry and return True; False for one that a process is building now.

    A process that has an entry open keeps its contents.

    Raises:
        StorageError: it cannot be removed.
    """
    if entry.path.is_dir() and is_locked(entry.path):
        return False
    try:
        if entry.path.is_dir():
            shutil.rmtree(entry.path)
        else:
            entry.path.unlink(missing_ok=True)
    except FileNotFoundError:  # another process removed it
        return True
    except OSError as error:
        raise storage_error(entry.path, error) from error
    return True


def _paths(state: Path) -> Iterator[tuple[str, Path]]:
    for root, folders, files in os.walk(state):
        place = Path(root)
        if place.name == DECODED:
            yield from (("decoded data", place / name) for name in [*folders, *files])
            folders.clear()
        elif place.name == NOISE:
            names = (name for name in files if name.endswith(SUFFIX))
            yield from (("natural noise", place / name) for name in names)


def _entry(kind: str, path: Path) -> CacheEntry:
    statuses = list(file_states(path))
    used = max((status.st_mtime for status in statuses), default=0.0)
    return CacheEntry(kind, path, sum(status.st_size for status in statuses), used)
