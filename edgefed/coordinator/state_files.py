"""The arrays of a run's state on disk: a group that stays as it was stays in the file it is in.

Weights change with every exchange, a stack of averaged data hardly ever. So a commit writes what is
new into a file of its own, and the layout, which the commit's row holds, says which group is where.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from edgefed.errors import StorageError
from edgefed.files import make_folder, storage_error, write_atomic
from edgefed.learn.types import Tensors

Layout = dict[str, tuple[str, list[str]]]
"""For each group the file that holds it, and the names of its arrays."""

PATTERN = "state-*.safetensors"


@dataclass(frozen=True)
class _Kept:
    """A group as it was last written; the same object is not written again."""

    arrays: Tensors
    file: str


class StateFiles:
    """Writes and reads states.

    Args:
        durable: whether a write waits for the disk.
    """

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable
        self._kept: dict[Path, dict[str, _Kept]] = {}

    def write(self, folder: Path, file: str, groups: Mapping[str, Tensors]) -> Layout:
        """Write the groups that are not on disk yet, and return where each one is.

        Args:
            folder: the run's.
            file: name of the new file.
            groups: of a state, whose arrays are never changed in place.

        Raises:
            StorageError: the disk does not take it.
        """
        kept = self._kept.get(folder, {})
        places = {
            group: kept[group].file
            for group, arrays in groups.items()
            if arrays
            and group in kept
            and kept[group].arrays is arrays
            and kept[group].file != file
        }
        fresh = {
            f"{group}/{name}": array
            for group, arrays in groups.items()
            if group not in places
            for name, array in arrays.items()
        }
        self._put(folder / file, save(contiguous(fresh)))
        return {group: (places.get(group, file), list(each)) for group, each in groups.items()}

    def committed(self, folder: Path, layout: Layout, groups: Mapping[str, Tensors]) -> None:
        """Note that a layout counts from now on, and delete the files that it does not name."""
        self._kept[folder] = {
            group: _Kept(arrays, layout[group][0]) for group, arrays in groups.items()
        }
        named = {file for file, _ in layout.values()}
        for path in folder.glob(PATTERN):
            if path.name not in named:
                path.unlink(missing_ok=True)

    def read(self, folder: Path, layout: Layout) -> dict[str, Tensors]:
        """Return the groups of a layout.

        Raises:
            StorageError: a file is missing or damaged.
        """
        files = {file for file, _ in layout.values()}
        found = {file: _load(folder / file) for file in files}
        try:
            return {
                group: {name: found[file][f"{group}/{name}"] for name in names}
                for group, (file, names) in layout.items()
            }
        except KeyError as error:
            (name,) = error.args
            files_in_words = ", ".join(str(folder / file) for file in sorted(files))
            raise _unreadable(folder, files_in_words, f"{name} is missing") from error

    def _put(self, path: Path, data: bytes) -> None:
        if self._durable:
            write_atomic(path, data)
            return
        make_folder(path.parent)
        try:
            path.write_bytes(data)
        except OSError as error:
            raise storage_error(path, error) from error


def contiguous(arrays: Tensors) -> Tensors:
    """Return arrays as they can be saved."""
    # Not np.ascontiguousarray, which makes a scalar an array of shape (1,).
    return {name: np.asarray(array, order="C") for name, array in arrays.items()}


def _load(path: Path) -> Tensors:
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise _unreadable(path.parent, str(path), str(error)) from error


def _unreadable(folder: Path, where: str, why: str) -> StorageError:
    return StorageError(
        f"The state of run {folder.name} cannot be read from {where}: {why}.",
        hint="restore the file from a backup, or start the run again",
    )
