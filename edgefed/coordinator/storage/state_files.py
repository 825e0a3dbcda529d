"""The arrays of a run's state on disk; a commit writes only the groups that changed.

Weights change with every exchange, a stack of averaged data rarely. A commit therefore writes the
changed groups into a new file. The commit's row holds the layout: the file of each group, and the
digest of each file.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from edgefed.errors import StorageError
from edgefed.files.mapped import opened_bytes
from edgefed.files.writing import make_folder, open_private, private_output, storage_error
from edgefed.learn.base.types import Tensors

PIECE = 1 << 20
"""Bytes of a file that are digested at a time."""

PATTERN = "state-*.safetensors"

LARGE_BYTES = 2**24
"""Groups of fewer bytes stay in memory."""

_KINDS = {
    f"{kind}{bits}": f"{letter}{bits}"
    for kind, letter, sizes in (
        ("float", "F", (16, 32, 64)),
        ("int", "I", (8, 16, 32, 64)),
        ("uint", "U", (8, 16, 32, 64)),
    )
    for bits in sizes
} | {"bool": "BOOL"}
"""The names of dtypes in a safetensors file."""


@dataclass(frozen=True)
class Layout:
    """The places of a state's arrays.

    Attributes:
        places: the file that holds each group.
        names: of each group's arrays.
        digests: SHA-256 of each file.
    """

    places: Mapping[str, str]
    names: Mapping[str, tuple[str, ...]]
    digests: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """Return the layout in the form of a commit's row."""
        groups = {group: [file, list(self.names[group])] for group, file in self.places.items()}
        return {"groups": groups, "digests": dict(self.digests)}

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> Layout:
        """Return the layout that ``to_json`` wrote."""
        groups = known["groups"].items()
        return cls(
            {group: file for group, (file, _) in groups},
            {group: tuple(names) for group, (_, names) in groups},
            known["digests"],
        )


@dataclass(frozen=True)
class _KeptGroup:
    """A group as it was last written; the same arrays are not written again."""

    arrays: Tensors
    file: str
    digest: str


class StateFiles:
    """Writes and reads states.

    The arrays of the run that was committed last are kept, so that a group which has not changed is
    not written again; those of other runs are not.

    Args:
        durable: whether a write waits for the disk.

    Attributes:
        held: names of files that are not deleted, whatever is committed.
    """

    def __init__(self, *, durable: bool) -> None:
        self.held: frozenset[str] = frozenset()
        self._durable = durable
        self._folder = Path()
        self._kept: dict[str, _KeptGroup] = {}

    def write(self, folder: Path, file: str, groups: Mapping[str, Tensors]) -> Layout:
        """Write the groups that are not on disk yet, and return the place of each.

        Args:
            folder: the run's.
            file: name of the new file.
            groups: of a state, whose arrays are never changed in place.

        Raises:
            StorageError: the disk does not take it.
        """
        kept = self._kept if folder == self._folder else {}
        before = {
            group: kept[group]
            for group, arrays in groups.items()
            if arrays
            and group in kept
            and _same(kept[group].arrays, arrays)
            # A repeated write replaces this very file, so what it held is written again
            and kept[group].file != file
        }
        fresh = {
            f"{group}/{name}": array
            for group, arrays in groups.items()
            if group not in before
            for name, array in arrays.items()
        }
        digest = self._put(folder / file, fresh)
        digests = {kept_group.file: kept_group.digest for kept_group in before.values()}
        return Layout(
            {group: before[group].file if group in before else file for group in groups},
            {group: tuple(arrays) for group, arrays in groups.items()},
            {**digests, file: digest},
        )

    def committed(
        self, folder: Path, layout: Layout, groups: Mapping[str, Tensors]
    ) -> Mapping[str, Tensors]:
        """Note that a layout counts from now on, and delete the files that it does not name.

        Returns:
            The groups; where they are durable and large, mapped from the files.
        """
        places, digests = layout.places, layout.digests
        if self._durable:  # a file that is not may be written again in place
            groups = self._mapped(folder, places, groups)
        self._folder = folder
        self._kept = {
            group: _KeptGroup(arrays, places[group], digests[places[group]])
            for group, arrays in groups.items()
        }
        # The row that names the layout is committed by now, so no reader needs the others
        for path in folder.glob(PATTERN):
            if path.name not in digests and path.name not in self.held:
                path.unlink(missing_ok=True)
        return groups

    def _mapped(
        self, folder: Path, places: Mapping[str, str], groups: Mapping[str, Tensors]
    ) -> dict[str, Tensors]:
        """Return groups of which the large ones are mapped from their files, if they are new."""
        kept, mapped, opened = self._kept, dict(groups), dict[str, Tensors]()
        for group, arrays in groups.items():
            known = group in kept and _same(kept[group].arrays, arrays)
            if known or sum(array.nbytes for array in arrays.values()) < LARGE_BYTES:
                continue
            file = places[group]
            with suppress(OSError):
                if file not in opened:
                    opened[file] = _opened(folder / file)
                mapped[group] = {name: opened[file][f"{group}/{name}"] for name in arrays}
        return mapped

    def read(self, folder: Path, layout: Layout) -> dict[str, Tensors]:
        """Return the groups of a layout.

        Raises:
            StorageError: a file is missing or damaged.
        """
        loaded = {file: _load(folder / file, digest) for file, digest in layout.digests.items()}
        try:
            return {
                group: {name: loaded[file][f"{group}/{name}"] for name in layout.names[group]}
                for group, file in layout.places.items()
            }
        except KeyError as error:
            (name,) = error.args
            files = ", ".join(str(folder / file) for file in sorted(loaded))
            raise _unreadable(folder, files, f"{name} is missing") from error

    def check(self, folder: Path, layout: Layout) -> None:
        """Check that the files of a layout exist with the same bytes.

        Raises:
            StorageError: a file is missing or damaged.
        """
        for file, digest in layout.digests.items():
            _check(folder / file, digest)

    def _put(self, path: Path, arrays: Tensors) -> str:
        """Write a file and return its digest."""
        if self._durable:
            return write_arrays(path, arrays)
        make_folder(path.parent)
        try:
            with open_private(path, "wb") as file:
                return _write(file, arrays, {})
        except OSError as error:
            raise storage_error(path, error) from error


def _same(kept: Tensors, arrays: Tensors) -> bool:
    """Return whether two groups consist of the very same arrays."""
    if kept is arrays:
        return True
    # By identity, which is enough since a state's arrays are never changed in place
    return [*kept] == [*arrays] and all(kept[name] is array for name, array in arrays.items())


def write_arrays(
    path: Path, arrays: Tensors, metadata: Mapping[str, str] | None = None, *, sync: bool = True
) -> str:
    """Write a safetensors file, array by array, and return its SHA-256.

    Args:
        path: the file, which is replaced atomically.
        arrays: by name.
        metadata: of the file's header.
        sync: whether to wait for the disk.

    Raises:
        StorageError: the disk does not take it; the old file is intact.
    """
    size = sum(array.nbytes for array in arrays.values())
    with private_output(path, size, sync=sync) as file:
        return _write(file, arrays, metadata or {})


def _write(file: BinaryIO, arrays: Tensors, metadata: Mapping[str, str]) -> str:
    sha = hashlib.sha256()
    for piece in _pieces(arrays, metadata):
        sha.update(piece)
        file.write(piece)
    return sha.hexdigest()


def _pieces(arrays: Tensors, metadata: Mapping[str, str]) -> Iterator[bytes | memoryview]:
    """Yield the parts of a safetensors file, without a copy of contiguous arrays."""
    # The largest items come first, so that every array is aligned.
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    end = 0
    for name in names:
        start, end = end, end + arrays[name].nbytes
        kind = _KINDS[arrays[name].dtype.newbyteorder("=").name]
        shape = list(arrays[name].shape)
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    # Padded to 8 bytes, so that the arrays behind it are aligned
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in names:
        # The format is little-endian on every machine
        dtype = arrays[name].dtype.newbyteorder("<")
        yield np.asarray(arrays[name], dtype, order="C").reshape(-1).view(np.uint8).data


def _check(path: Path, digest: str) -> None:
    try:
        if _digest_of(path) != digest:
            raise _unreadable(path.parent, str(path), "its bytes were changed")
    except OSError as error:
        raise _unreadable(path.parent, str(path), error.strerror or str(error)) from error


def _load(path: Path, digest: str) -> Tensors:
    # Checked before it is parsed, so that damaged bytes do not reach the parser
    _check(path, digest)
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise _unreadable(path.parent, str(path), str(error)) from error


def _opened(path: Path) -> Tensors:
    """Return the arrays of a file that was written here, mapped.

    Raises:
        OSError: it cannot be read.
    """
    held = opened_bytes(path)
    start = 8 + int.from_bytes(held[:8].tobytes(), "little")
    header = json.loads(held[8:start].tobytes())
    header.pop("__metadata__", None)
    kinds = {letter: np.dtype(name).newbyteorder("<") for name, letter in _KINDS.items()}
    return {
        name: held[start:][slice(*entry["data_offsets"])]
        .view(kinds[entry["dtype"]])
        .reshape(entry["shape"])
        for name, entry in header.items()
    }


def _digest_of(path: Path) -> str:
    """Return a file's SHA-256, read piece by piece."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(PIECE):
            sha.update(piece)
    return sha.hexdigest()


def _unreadable(folder: Path, where: str, why: str) -> StorageError:
    return StorageError(
        f"The state of run {folder.name} cannot be read from {where}: {why}.",
        code="storage.damaged",
        hint="restore the file from a backup, or start the run again",
    )
