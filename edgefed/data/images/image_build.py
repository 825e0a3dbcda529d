"""Decode images into a cache: in several threads, in bounded memory, resumed after a kill."""

from __future__ import annotations

import hashlib
import logging
import os
import warnings
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edgefed.data.images.image_decoding import (
    TOO_LARGE,
    UNREADABLE,
    Pixels,
    read_pixels,
    shape_of,
)
from edgefed.data.images.image_index import (
    ImageEntry,
    ImageIndex,
    append_index,
    read_index,
    write_index,
)
from edgefed.data.images.image_options import ImageOptions
from edgefed.errors import DataError, EdgeFedError, StorageError
from edgefed.files.stored_images import PixelFile
from edgefed.files.writing import PRIVATE_FILE, free_bytes, open_private, storage_error
from edgefed.terminal.progress import tell_progress
from edgefed.terminal.units import size

log = logging.getLogger(__name__)

MAX_THREADS = 4
AHEAD_BYTES = 64 * 2**20
"""Most pixels that are decoded and wait to be written."""

SAVE_BYTES = 128 * 2**20
"""Pixels after which the progress is saved, and from which a killed build resumes."""

SAVE_FILES = 500
"""The same in files."""

RESERVE_BYTES = 256 * 2**20
"""Bytes of the disk that images which are added to a cache leave free."""

WHAT = "decoding images"

PROBLEMS = {UNREADABLE: "unreadable", TOO_LARGE: "too_large"}
"""Reasons of files without an image, by the code of the error; ``unlike`` is the third."""


@dataclass(frozen=True)
class ImageFile:
    """A file to be decoded.

    Attributes:
        name: its path below the folder.
        state: its size and time.
    """

    name: str
    path: Path
    state: ImageEntry


def add_images(
    cache: Path, index: ImageIndex, files: Sequence[ImageFile], options: ImageOptions, known: int
) -> ImageIndex:
    """Decode files into a cache.

    Args:
        cache: the cache's folder, which no other process writes.
        index: of the cache, which is on disk; changed.
        files: to be decoded.
        options: of the conversion to pixels.
        known: number of files that are decoded already, for the progress.

    Returns:
        The index that is on disk. If images were there before, it may lack the last of ``files``:
        those that the disk has no room for.

    Raises:
        DataError: the first images of a cache take more than ``max_bytes``.
        StorageError: the disk has no room for the first images of a cache.
    """
    grows = index.rows > 0
    try:
        room = _room(cache, index, options) if grows else len(files)
        if room < len(files):
            files = sorted(files, key=lambda file: file.state.time)[:room]
        with _Builder(cache, index, options) as builder, warnings.catch_warnings():
            # Pillow warns of damaged metadata and of sizes that are refused here.
            warnings.simplefilter("ignore")
            builder.run(files, known)
    except StorageError as error:
        saved = read_index(cache) if grows else None
        if saved is None:
            raise
        log.warning("new images are not used: %s", error.as_line())
        return saved
    return index


def compact(cache: Path, index: ImageIndex, names: Sequence[str]) -> ImageIndex:
    """Copy the images of some files into a new file of pixels; return its index, which is on disk.

    Raises:
        StorageError: the disk does not take it; the cache is as before.
    """
    assert index.image is not None
    entries = {name: index.entries[name] for name in names}
    rows = [entry.row for entry in entries.values() if entry.row is not None]
    copied = ImageIndex(index.folder, image=index.image)
    path = cache / copied.pixels
    try:
        before = PixelFile(cache / index.pixels, index.image)
        at_once = max(1, AHEAD_BYTES // index.image_bytes)
        with open_private(path, "xb") as file:
            for start in range(0, len(rows), at_once):
                file.write(before.read(np.array(rows[start : start + at_once], np.int64)).data)
            file.flush()
            os.fdatasync(file.fileno())
        for name, entry in entries.items():
            row = None if entry.row is None else copied.rows
            copied.put(name, replace(entry, row=row))
        write_index(cache, copied)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise storage_error(path, error) from error
    return copied


def _room(cache: Path, index: ImageIndex, options: ImageOptions) -> int:
    """Return how many images may be added."""
    allowed = options.max_bytes // index.image_bytes - index.rows
    return max(0, min(allowed, (free_bytes(cache) - RESERVE_BYTES) // index.image_bytes))


@dataclass(frozen=True, eq=False)
class _Decoded:
    """The pixels of a file and their digest, or the reason for which there are none."""

    pixels: Pixels | None
    digest: int = 0
    problem: str = ""


class _Builder:
    """Adds images to a cache.

    Args:
        cache: the cache's folder.
        index: of the cache.
        options: of the conversion to pixels.
    """

    def __init__(self, cache: Path, index: ImageIndex, options: ImageOptions) -> None:
        self._cache = cache
        self._path = cache / index.pixels
        self._options = options
        self._index = index
        self._unsaved: list[str] = []
        self._saving: Future[None] | None = None

    def __enter__(self) -> _Builder:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self._path, flags, PRIVATE_FILE)
        except OSError as error:
            raise storage_error(self._path, error) from error
        self._saver = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *_: object) -> None:
        self._saver.shutdown()
        os.close(self._file)

    def run(self, files: Sequence[ImageFile], known: int) -> None:
        """Decode files."""
        from PIL import Image

        Image.init()  # before several threads would do it at once
        total = known + len(files)
        tell_progress(WHAT, known, total)
        with closing(self._decoded(files)) as decoded:
            for done, (file, image) in enumerate(decoded, 1):
                self._add(file, image, len(files) - done + 1)
                tell_progress(WHAT, known + done, total)
                self._save_sometimes()
        if self._saving is not None:
            self._saving.result()
        self._save(self._unsaved)

    def _decoded(
        self, files: Sequence[ImageFile]
    ) -> Generator[tuple[ImageFile, _Decoded], None, None]:
        """Yield each file with its image."""
        threads = max(1, min(MAX_THREADS, os.cpu_count() or 1, len(files)))
        waiting: deque[tuple[ImageFile, Future[_Decoded]]] = deque()
        pool = ThreadPoolExecutor(threads)
        try:
            for file in files:
                waiting.append((file, pool.submit(_image, file.path, self._options)))
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

    def _add(self, file: ImageFile, decoded: _Decoded, left: int) -> None:
        """Write an image, or note that a file has none; ``left`` files are still to be added."""
        index, problem, row = self._index, decoded.problem, None
        if decoded.pixels is not None:
            if index.image is None:
                self._check_room(decoded.pixels.size, left)
                index.image = shape_of(decoded.pixels)
            if shape_of(decoded.pixels) == index.image:
                row = index.rows
                self._write(decoded.pixels, row * index.image_bytes)
            else:
                problem = "unlike"
        entry = replace(file.state, row=row, digest=decoded.digest, problem=problem)
        index.put(file.name, entry)
        self._unsaved.append(file.name)

    def _check_room(self, image_bytes: int, number: int) -> None:
        """Check, when the first image is known, that all of them may and can be kept."""
        needed, most = image_bytes * number, self._options.max_bytes
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
        new = len(self._unsaved)
        if new < SAVE_FILES and new * self._index.image_bytes < SAVE_BYTES:
            return
        if self._saving is not None:
            if not self._saving.done():
                return
            self._saving.result()
        self._saving = self._saver.submit(self._save, list(self._unsaved))
        self._unsaved.clear()

    def _save(self, names: list[str]) -> None:
        """Write the entries of files after the pixels that they tell of."""
        try:
            os.fdatasync(self._file)
        except OSError as error:
            raise storage_error(self._path, error) from error
        append_index(self._cache, self._index, names)


def _image(path: Path, options: ImageOptions) -> _Decoded:
    """Return a file's pixels, or why there are none."""
    try:
        pixels = read_pixels(path, options.size, options.greyscale)
    except EdgeFedError as error:
        problem = PROBLEMS.get(error.code)
        if problem is None:
            raise
        return _Decoded(None, problem=problem)
    digest = hashlib.blake2b(np.ascontiguousarray(pixels).data, digest_size=8).digest()
    return _Decoded(pixels, int.from_bytes(digest, "little"))
