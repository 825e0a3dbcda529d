"""Decoded images of a folder, kept in a file beside the state.

Each folder of images has a cache of its own for each size and number of channels. A file is decoded
when it is new, or its name, size or time has changed. Images are only added to the file of pixels,
so that its readers keep their images; when most of its images are of files that have gone,
the others are copied into a new one. A cache is removed when its folder is gone or it was not used
for a week.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefed.data.images.image_build import ImageFile, add_images, compact
from edgefed.data.images.image_decoding import read_pixels, shape_of, sizes_differ
from edgefed.data.images.image_index import (
    INDEX,
    ImageEntry,
    ImageIndex,
    cache_name,
    read_index,
    state_of,
    write_index,
)
from edgefed.data.images.image_options import ImageOptions
from edgefed.errors import DataError, StorageError
from edgefed.files.stored_images import PixelFile, StoredImages, is_unused
from edgefed.files.writing import make_folder, open_private, storage_error

PREFIX = "images-"
UNUSED_SECONDS = 7 * 24 * 3600
"""Seconds without use after which a cache is removed."""

FEW = 256
"""Images of files that have gone, or lines about them, that a cache keeps in any case."""


@dataclass(frozen=True)
class CachedImages:
    """Images of a folder.

    Attributes:
        images: those that can be read; None where there are none.
        positions: numbers of their files, rising.
        problems: reasons of the other files, by their numbers: ``unreadable``, ``too_large``,
            ``unlike`` the others in size, or without ``room`` in the cache.
    """

    images: StoredImages | None
    positions: list[int]
    problems: Mapping[int, str]


def cached_images(
    root: Path, folder: Path, paths: Sequence[Path], options: ImageOptions
) -> CachedImages:
    """Return the images of files, decoding those that the cache does not have.

    Args:
        root: keeps the caches of many folders.
        folder: that the files are below.
        paths: the files.
        options: of the conversion to pixels.

    Raises:
        DataError: at least half of the images differ in size from the first, and ``options.size``
            is 0; ``data.too_large``.
        StorageError: the cache cannot be written.
    """
    folder = folder.resolve()
    cache = make_folder(root / f"{PREFIX}{cache_name(folder, options)}")
    files = {
        "/".join(path.parts[-2:]): folder / path.relative_to(path.parents[1]) for path in paths
    }
    try:
        with locked(cache):
            index = _updated(cache, folder, files, options)
            os.utime(cache / INDEX)
            images = _images(cache, index, list(files))
            _remove_replaced(cache, index)
        _remove_unused(root, cache)
    except OSError as error:
        raise storage_error(cache, error) from error
    return images


def _updated(
    cache: Path, folder: Path, files: Mapping[str, Path], options: ImageOptions
) -> ImageIndex:
    """Return the index of a cache after decoding the files that it lacks."""
    index = _intact(cache)
    started = index is None
    if index is None:
        index = ImageIndex(str(folder))
        write_index(cache, index)
    try:
        lacking = _lacking(index, files)
        index = _compacted(cache, index, [name for name in files if name not in lacking])
        if lacking:
            known = len(files) - len(lacking)
            index = add_images(cache, index, list(lacking.values()), options, known)
        return _checked(index, files, options)
    except DataError:
        _remove(cache)
        if started:
            raise
    except StorageError:
        _remove(cache)
        raise
    return _updated(cache, folder, files, options)  # other images may be the most now


def _intact(cache: Path) -> ImageIndex | None:
    """Return the index of a cache with all pixels that it tells of; None without."""
    index = read_index(cache)
    if index is None:
        return None
    path = cache / index.pixels
    if index.rows and (index.image is None or not path.is_file()):
        return None
    if index.rows and path.stat().st_size < index.rows * index.image_bytes:
        return None
    if not index.lines:
        write_index(cache, index)
    return index


def _lacking(index: ImageIndex, files: Mapping[str, Path]) -> dict[str, ImageFile]:
    """Return the files that were not decoded as they are now, by name."""
    lacking = {}
    for name, path in files.items():
        state, known = state_of(path), index.entries.get(name)
        if state is None:  # it has gone, or may not be looked at
            state = ImageEntry(0, 0)
        if known is None or (known.size, known.time) != (state.size, state.time):
            lacking[name] = ImageFile(name, path, state)
    return lacking


def _compacted(cache: Path, index: ImageIndex, names: Sequence[str]) -> ImageIndex:
    """Return the index after copying the images of some files, if most are of others."""
    images = sum(index.entries[name].row is not None for name in names)
    stale = index.rows - images > max(images, FEW)
    if not images or not (stale or index.lines > 2 * len(names) + FEW):
        return index
    try:
        return compact(cache, index, names)
    except StorageError:  # the disk has no room for a copy
        return index


def _checked(index: ImageIndex, files: Mapping[str, Path], options: ImageOptions) -> ImageIndex:
    """Return the index if most images have the size of the first."""
    known = {name: index.entries[name] for name in files if name in index.entries}
    used = [name for name, entry in known.items() if entry.row is not None]
    odd = [name for name, entry in known.items() if entry.problem == "unlike"]
    if len(odd) < max(1, len(used)):
        return index
    two = (used or odd)[0], odd[0]
    one, other = (shape_of(read_pixels(files[name], 0, options.greyscale)) for name in two)
    raise sizes_differ(files[two[0]], one, files[two[1]], other)


def _images(cache: Path, index: ImageIndex, names: Sequence[str]) -> CachedImages:
    """Return the images of files, and why others have none."""
    positions, rows, digests, problems = [], [], [], {}
    for position, name in enumerate(names):
        entry = index.entries.get(name)
        if entry is None or entry.row is None:
            problems[position] = "room" if entry is None else entry.problem
            continue
        positions.append(position)
        rows.append(entry.row)
        digests.append(entry.digest)
    if index.image is None or not rows:
        return CachedImages(None, [], problems)
    file = PixelFile(cache / index.pixels, index.image)
    images = StoredImages(file, np.array(rows, np.int64), np.array(digests, np.uint64))
    return CachedImages(images, positions, problems)


def _remove(cache: Path) -> None:
    for path in (*cache.glob("pixels-*"), cache / INDEX):
        path.unlink(missing_ok=True)


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Keep other processes from building the same cache inside a ``with`` block."""
    with open_private(cache / "lock", "ab") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_replaced(cache: Path, index: ImageIndex) -> None:
    """Remove pixels that have been replaced and have no readers, and the index of old versions."""
    for path in (*cache.glob("pixels-*"), cache / "index.json"):
        if path.name != index.pixels and is_unused(path):
            path.unlink(missing_ok=True)


def _remove_unused(root: Path, cache: Path) -> None:
    """Remove the caches of folders that have gone, and those that nothing uses any more."""
    now = (cache / INDEX).stat().st_mtime
    for other in root.glob(f"{PREFIX}*"):
        index = read_index(other)
        if other == cache or not all(map(is_unused, other.glob("pixels-*"))):
            continue
        with suppress(OSError):
            used = max(path.stat().st_mtime for path in (other, *other.iterdir()))
            gone = index is not None and not Path(index.folder).is_dir()
            if gone or now - used > UNUSED_SECONDS:
                shutil.rmtree(other)
