"""Build a cache of decoded images: in several threads, in bounded memory, resumed after a kill."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np

from edgefed.data.images.image_decoding import UNREADABLE, Pixels, read_pixels, sizes_differ
from edgefed.data.images.image_index import INDEX, ImageIndex, read_index, write_index
from edgefed.data.images.image_options import ImageOptions
from edgefed.errors import DataError, EdgeFedError, StorageError
from edgefed.files.writing import PRIVATE_FILE, free_bytes, storage_error
from edgefed.terminal.progress import tell_progress
from edgefed.terminal.units import size

MAX_THREADS = 4
AHEAD_BYTES = 64 * 2**20
"""Most pixels that are decoded and wait to be written."""

SAVE_BYTES = 128 * 2**20
"""Pixels after which the progress is saved, and from which a killed build resumes."""

SAVE_FILES = 500
"""The same in files."""

WHAT = "decoding images"


def build(
    cache: Path, pixels: Path, wanted: ImageIndex, paths: Sequence[Path], options: ImageOptions
) -> ImageIndex:
    """Decode files into a cache, resuming an earlier build of the same files.

    Args:
        cache: the cache's folder, which no other process writes.
        pixels: the file in it for the pixels.
        wanted: describes the files, none of them decoded.
        paths: the files.
        options: of the conversion to pixels.

    Returns:
        The index of the complete cache, which is on disk.

    Raises:
        DataError: as ``cached_images``; the cache is removed.
        StorageError: the disk is full; the cache is removed.
    """
    before = read_index(cache)
    resumes = before is not None and before.files == wanted.files and not before.is_complete
    start = before if before is not None and resumes and pixels.is_file() else wanted
    try:
        with _Builder(cache, pixels, start, options) as builder, warnings.catch_warnings():
            # Pillow warns of damaged metadata and of sizes that are refused here.
            warnings.simplefilter("ignore")
            return builder.run(paths)
    except (DataError, StorageError):
        pixels.unlink(missing_ok=True)
        (cache / INDEX).unlink(missing_ok=True)
        raise


class _Builder:
    """A build of a cache.

    Args:
        cache: the cache's folder.
        pixels: the file for the pixels.
        index: the progress so far.
        options: of the conversion to pixels.
    """

    def __init__(self, cache: Path, pixels: Path, index: ImageIndex, options: ImageOptions) -> None:
        self._cache = cache
        self._path = pixels
        self._options = options
        self._index = index
        self._first: Path | None = None
        self._saved = index
        self._saving: Future[None] | None = None

    def __enter__(self) -> _Builder:
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, PRIVATE_FILE)
        self._saver = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._saver.shutdown()
        os.close(self._file)

    def run(self, paths: Sequence[Path]) -> ImageIndex:
        """Decode the files that are not done."""
        from PIL import Image

        Image.init()  # before several threads would do it at once
        self._first = paths[0] if paths else None
        tell_progress(WHAT, self._index.done, len(paths))
        with closing(self._decoded(paths[self._index.done :])) as decoded:
            for path, image in decoded:
                self._add(path, image)
                tell_progress(WHAT, self._index.done, len(paths))
                self._save_sometimes()
        if self._index.image is not None:
            # Of files at the end that are no images, there are no pixels.
            os.ftruncate(self._file, self._index.count * self._index.image_bytes)
        if self._saving is not None:
            self._saving.result()
        self._save(self._index)
        return self._index

    def _decoded(self, paths: Sequence[Path]) -> Generator[tuple[Path, Pixels | None], None, None]:
        """Yield each file with its image, or None for a file that is no image."""
        threads = max(1, min(MAX_THREADS, os.cpu_count() or 1, len(paths)))
        waiting: deque[tuple[Path, Future[Pixels | None]]] = deque()
        pool = ThreadPoolExecutor(threads)
        try:
            for path in paths:
                waiting.append((path, pool.submit(_image, path, self._options)))
                while len(waiting) > self._ahead(threads):
                    first, future = waiting.popleft()
                    yield first, future.result()
            for first, future in waiting:
                yield first, future.result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _ahead(self, threads: int) -> int:
        """Return how many files to decode ahead."""
        if not self._index.image_bytes:
            return threads - 1
        return max(threads - 1, min(8 * threads, AHEAD_BYTES // self._index.image_bytes))

    def _add(self, path: Path, image: Pixels | None) -> None:
        """Write an image, or note that a file is none."""
        index, number = self._index, self._index.done
        if image is None:
            changed = {"unreadable": (*index.unreadable, number), "done": number + 1}
            self._index = index.model_copy(update=changed)
            return
        shape = (image.shape[0], image.shape[1], image.size // (image.shape[0] * image.shape[1]))
        if index.image is None:
            self._check_room(image.size, number)
            self._first = path
        elif shape != index.image:
            assert self._first is not None
            raise sizes_differ(self._first, index.image, path, shape)
        self._write(image, number * image.size)
        digest = hashlib.blake2b(index.digest.encode() + _digest(image), digest_size=16)
        changed = {"image": shape, "done": number + 1, "digest": digest.hexdigest()}
        self._index = index.model_copy(update=changed)

    def _check_room(self, image_bytes: int, number: int) -> None:
        """Check, when the first image is known, that all of them may and can be kept."""
        needed = image_bytes * (self._index.count - number)
        most = self._options.max_bytes
        if needed > most:
            raise DataError(
                f"The decoded images of {self._index.folder} take {size(needed)} on disk; at most"
                f" {size(most)} are allowed.",
                code="data.too_large",
                hint="scale the images down (size=64), or raise max_bytes",
            )
        if needed > free_bytes(self._cache):
            raise StorageError(
                f"The disk is full: the decoded images of {self._index.folder} need"
                f" {size(needed)} in {self._cache.parent}.",
                code="storage.full",
                hint="free some space, or scale the images down: size=64",
            )

    def _write(self, image: Pixels, offset: int) -> None:
        rest = np.ascontiguousarray(image).reshape(-1).data
        try:
            while rest:
                count = os.pwrite(self._file, rest, offset)
                rest, offset = rest[count:], offset + count
        except OSError as error:
            raise storage_error(self._path, error, len(rest)) from error

    def _save_sometimes(self) -> None:
        """Save the progress now and then, beside the decoding."""
        new = self._index.done - self._saved.done
        if new < SAVE_FILES and new * self._index.image_bytes < SAVE_BYTES:
            return
        if self._saving is not None:
            if not self._saving.done():
                return
            self._saving.result()
        self._saved = self._index
        self._saving = self._saver.submit(self._save, self._index)

    def _save(self, index: ImageIndex) -> None:
        """Write an index after the pixels that it tells of."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise storage_error(self._path, error) from error
        write_index(self._cache, index)


def _image(path: Path, options: ImageOptions) -> Pixels | None:
    """Return a file's pixels; None for a file that is no image.

    Raises:
        DataError: ``data.too_large``.
    """
    try:
        return read_pixels(path, options.size, options.greyscale)
    except EdgeFedError as error:
        if error.code == UNREADABLE:
            return None
        raise


def _digest(image: Pixels) -> bytes:
    """Return a digest of some rows; with all of them, decoding would take a tenth longer."""
    return hashlib.blake2b(np.ascontiguousarray(image[::16]).data, digest_size=16).digest()
