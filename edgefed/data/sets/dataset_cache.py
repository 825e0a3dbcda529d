"""Data sets that were decoded and prepared once, kept as arrays that later runs map into memory.

Each data set has an entry of its own for the options with which it was read. An entry is written
again when a source file was added, removed or changed, or when the entry is damaged. All runs and
worker processes that map an entry share its memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import zlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from edgefed.data.base.types import Array, Dataset, Preparation
from edgefed.data.images.image_cache import UNUSED_SECONDS, locked
from edgefed.data.images.image_index import fingerprint
from edgefed.errors import StorageError
from edgefed.files.mapped import blocks, opened
from edgefed.files.samples import PixelScale, Samples
from edgefed.files.writing import (
    free_bytes,
    make_folder,
    private_output,
    write_atomic,
)
from edgefed.terminal.units import size
from edgefed.version import VERSION

log = logging.getLogger(__name__)

FORMAT = 1
"""Raised when entries have another form, or the same files are read in another way."""

PREFIX = "dataset-"
INDEX = "index.json"

SMALL_BYTES = 2**20
"""Files that are smaller together are read each time: that takes no longer."""

LIMIT_BYTES = 8 * 2**30
"""Most bytes of all entries; those that were used least recently are removed."""

_warned: set[Path] = set()

_FORMAT: Any = np.lib.format


class _Index(BaseModel):
    """What an entry holds beside its arrays.

    Attributes:
        checksums: CRC-32 of each array, by name.
        scales: of the training samples and of the test samples.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    checksums: dict[str, int]
    scales: tuple[PixelScale, PixelScale]
    classes: int
    shape: tuple[int, ...]
    warnings: tuple[str, ...]
    preparation: Preparation
    class_names: tuple[str, ...]


@dataclass(frozen=True)
class CachedSource:
    """Names an entry, and the files that it depends on.

    Attributes:
        root: keeps the entries of many data sets.
        key: all that decides how the files are read.
        files: lists the source files; those that are downloaded may be missing before they are
            read.
    """

    root: Path
    key: Sequence[str]
    files: Callable[[], Sequence[Path]]

    @property
    def folder(self) -> Path:
        """Folder of the entry."""
        text = json.dumps([FORMAT, VERSION, *self.key])
        return self.root / f"{PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def cached(source: CachedSource, read: Callable[[], Dataset]) -> Dataset:
    """Return the data set of an entry, with the same bits as from ``read``, which fills the entry.

    Its arrays are mapped: changes of them stay in this process. A failure to write an entry is
    logged, once for each ``root``, and has no other effect.

    Args:
        source: names the entry.
        read: reads and prepares the source files; its errors are raised.
    """
    before = _state(source)
    if before == "":
        return read()
    with ExitStack() as held:
        try:
            folder = make_folder(source.folder)
            # Processes that start at once, as those of a sweep, wait for the first to decode.
            held.enter_context(locked(folder))
        except (OSError, StorageError) as error:
            _warn(source.root, error)
            return read()
        dataset = None if before is None else _opened(folder, before)
        if dataset is None:
            dataset = read()
            after = _state(source)
            if after and before in (None, after) and _keep(source.root, folder, after, dataset):
                # What was read takes memory of this process's own, and the entry's is shared.
                dataset = _opened(folder, after) or dataset
        _remove_unused(source.root, folder)
    return dataset


def _state(source: CachedSource) -> str | None:
    """Return a fingerprint of the files; None without files, and nothing if an entry is no use."""
    try:
        files = source.files()
        if not files:
            return None
        if sum(path.stat().st_size for path in files if path.exists()) < SMALL_BYTES:
            return ""
        return fingerprint(Path("/"), [path.absolute() for path in files])
    except OSError:  # to read them says more
        return ""


def _opened(folder: Path, files: str) -> Dataset | None:
    """Return the data set of an entry; None if there is none of these files, or a damaged one."""
    try:
        index = _Index.model_validate_json((folder / INDEX).read_bytes())
        arrays = {}
        for name, checksum in index.checksums.items():
            arrays[name] = np.asarray(opened(_path(folder, files, name)))
            if _checksum(arrays[name]) != checksum:
                return None
        os.utime(folder / INDEX)
        return _dataset(arrays, index)
    # NumPy's reader of headers fails in many ways, and the entry is built again after each.
    except Exception:
        return None


def _dataset(arrays: dict[str, Array], index: _Index) -> Dataset:
    train, test = (
        Samples(
            arrays[f"{part}.inputs"],
            arrays[f"{part}.targets"],
            {
                name.removeprefix(f"{part}.column."): array
                for name, array in arrays.items()
                if name.startswith(f"{part}.column.")
            },
            scale,
        )
        for part, scale in zip(("train", "test"), index.scales, strict=True)
    )
    return Dataset(
        train,
        test,
        index.classes,
        index.shape,
        index.warnings,
        arrays.get("groups"),
        arrays.get("coarse"),
        index.preparation,
        index.class_names,
    )


def _keep(root: Path, folder: Path, files: str, dataset: Dataset) -> bool:
    """Write a data set into its entry; return False if that failed and nothing is left there."""
    arrays = _arrays(dataset)
    if sum(array.nbytes for array in arrays.values()) > LIMIT_BYTES:
        return False
    index = _Index(
        checksums={name: _checksum(array) for name, array in arrays.items()},
        scales=(dataset.train.scale, dataset.test.scale),
        classes=dataset.classes,
        shape=dataset.shape,
        warnings=dataset.warnings,
        preparation=dataset.preparation,
        class_names=dataset.class_names,
    )
    try:
        _write(folder, files, index, arrays)
    except (OSError, StorageError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        _warn(root, error)
        return False
    return True


def _write(folder: Path, files: str, index: _Index, arrays: dict[str, Array]) -> None:
    """Write the files of an entry, the index last.

    Raises:
        StorageError, OSError: the disk has too little room, or does not take them.
    """
    needed, free = sum(array.nbytes for array in arrays.values()), free_bytes(folder)
    if needed > free // 2:  # the run needs room too
        raise StorageError(f"{folder} needs {size(needed)} of the {size(free)} that are free.")
    for path in folder.glob("*.npy"):  # of other source files; a process that maps one keeps it
        path.unlink(missing_ok=True)
    for name, array in arrays.items():
        # What a power cut damages does not fit its checksum.
        with private_output(_path(folder, files, name), sync=False) as file:
            _FORMAT.write_array_header_1_0(file, _FORMAT.header_data_from_array_1_0(array))
            file.writelines(blocks(array))
    write_atomic(folder / INDEX, index.model_dump_json().encode(), sync=False)


def _arrays(dataset: Dataset) -> dict[str, Array]:
    """Return the arrays of a data set by name, each contiguous."""
    arrays: dict[str, Array | None] = {"groups": dataset.groups, "coarse": dataset.coarse}
    for part, samples in (("train", dataset.train), ("test", dataset.test)):
        arrays[f"{part}.inputs"], arrays[f"{part}.targets"] = samples.inputs, samples.targets
        for name, column in samples.columns.items():
            arrays[f"{part}.column.{name}"] = column
    return {
        name: np.ascontiguousarray(array) for name, array in arrays.items() if array is not None
    }


def _path(folder: Path, files: str, name: str) -> Path:
    """Return the file of an array; other source files have another one."""
    digest = hashlib.sha256(f"{files} {name}".encode()).hexdigest()
    return folder / f"{digest[:16]}.npy"


def _checksum(array: Array) -> int:
    checksum = zlib.crc32(f"{array.dtype.str} {array.shape}".encode())
    for block in blocks(array):
        checksum = zlib.crc32(block, checksum)
    return checksum


def _warn(root: Path, error: OSError | StorageError) -> None:
    """Log, the first time only, that decoded data are not kept."""
    if root not in _warned:
        why = error.message if isinstance(error, StorageError) else str(error)
        log.warning("decoded data are not cached, and each run reads them again: %s", why)
    _warned.add(root)


def _remove_unused(root: Path, used: Path) -> None:
    """Remove entries that nothing used for a week, and the oldest ones above `LIMIT_BYTES`.

    A process that has mapped an entry keeps its memory.
    """
    with suppress(OSError):  # another process removes entries, too
        entries = sorted(
            ((_last_use(path), path) for path in root.glob(f"{PREFIX}*")), reverse=True
        )
        total = 0
        for last, folder in entries:
            total += sum(path.stat().st_size for path in folder.iterdir())
            old = entries[0][0] - last > UNUSED_SECONDS
            if folder != used and (old or total > LIMIT_BYTES):
                shutil.rmtree(folder, ignore_errors=True)


def _last_use(folder: Path) -> float:
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
