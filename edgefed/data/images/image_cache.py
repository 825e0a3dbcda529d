"""Decoded images of a folder, kept in a file beside the state.

Each folder of images has a cache of its own for each size and number of channels. It is built again
when a file's name, size or time has changed, and removed when its folder is gone or it was not used
for a week.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgefed.data.images.image_build import build
from edgefed.data.images.image_index import (
    INDEX,
    ImageIndex,
    cache_name,
    fingerprint,
    read_index,
)
from edgefed.data.images.image_options import ImageOptions
from edgefed.files.stored_images import PixelFile, StoredImages, is_unused
from edgefed.files.writing import make_folder, open_private, storage_error

PREFIX = "images-"
UNUSED_SECONDS = 7 * 24 * 3600
"""Seconds without use after which a cache is removed."""


@dataclass(frozen=True)
class CachedImages:
    """Images of a folder.

    Attributes:
        images: those that can be read; None where there are none.
        positions: numbers of their files, rising.
    """

    images: StoredImages | None
    positions: list[int]


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
        DataError: the images differ in size and ``options.size`` is 0; ``data.too_large``.
        StorageError: the cache cannot be written.
    """
    folder = folder.resolve()
    cache = make_folder(root / f"{PREFIX}{cache_name(folder, options)}")
    paths = [folder / path.relative_to(path.parents[1]) for path in paths]
    try:
        wanted = ImageIndex(folder=str(folder), files=fingerprint(folder, paths), count=len(paths))
        with locked(cache):
            index = read_index(cache)
            images = None if index is None else _open(cache, index, wanted)
            if images is None:
                index = build(cache, _pixels(cache, wanted), wanted, paths, options)
                images = _open(cache, index, wanted)
            os.utime(cache / INDEX)
            _remove_replaced(cache, wanted)
        _remove_unused(root, cache)
    except OSError as error:
        raise storage_error(cache, error) from error
    assert index is not None
    return CachedImages(images, _positions(index))


def _open(cache: Path, index: ImageIndex, wanted: ImageIndex) -> StoredImages | None:
    """Return the images of a complete cache of the wanted files; None where there are none."""
    if index.files != wanted.files or not index.is_complete or index.image is None:
        return None
    path = _pixels(cache, wanted)
    if not path.is_file() or path.stat().st_size != index.count * index.image_bytes:
        return None
    file = PixelFile(path, index.image, index.digest)
    return StoredImages(file, np.array(_positions(index), np.int64))


def _positions(index: ImageIndex) -> list[int]:
    unreadable = set(index.unreadable)
    return [number for number in range(index.count) if number not in unreadable]


def _pixels(cache: Path, index: ImageIndex) -> Path:
    """Return the file of the pixels; other image files than before have another one."""
    return cache / f"pixels-{index.files[:16]}"


@contextmanager
def locked(cache: Path) -> Iterator[None]:
    """Keep other processes from building the same cache inside a ``with`` block."""
    with open_private(cache / "lock", "ab") as file:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_replaced(cache: Path, index: ImageIndex) -> None:
    """Remove pixels of files that have been replaced; their readers have them open."""
    for path in cache.glob("pixels-*"):
        if path != _pixels(cache, index):
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
