"""The index of a cache of decoded images: a line for each file that was read, in that order.

The first line is an object with the cache's folder and its file of pixels, and a later object adds
the shape of the images. Other lines are lists, of which the last one about a file holds. Lines are
appended; a line that a power cut has damaged, and the lines after it, are not used.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgefed.data.images.image_decoding import Shape
from edgefed.data.images.image_options import ImageOptions
from edgefed.files.writing import append_whole, open_private, storage_error, write_atomic

INDEX = "index.jsonl"


@dataclass(frozen=True)
class ImageEntry:
    """A file, as it was when it was read.

    Attributes:
        size: bytes.
        time: of its last change, in nanoseconds.
        row: number of its image in the file of pixels; None without an image.
        digest: of the pixels, below 2**64.
        problem: reason for which there is no image; empty with one.
    """

    size: int
    time: int
    row: int | None = None
    digest: int = 0
    problem: str = ""


@dataclass
class ImageIndex:
    """State of a cache.

    Attributes:
        folder: of the image files.
        pixels: name of the file of pixels.
        image: height, width and channels of each image; None before the first.
        entries: of the files, by their paths below ``folder``.
        rows: number of images in the file of pixels, with those that no entry names any more.
        lines: number of lines on disk; 0 where the file is to be written anew.
    """

    folder: str
    pixels: str = field(default_factory=lambda: f"pixels-{uuid.uuid4().hex[:16]}")
    image: Shape | None = None
    entries: dict[str, ImageEntry] = field(default_factory=dict)
    rows: int = 0
    lines: int = 0

    @property
    def image_bytes(self) -> int:
        """Bytes of an image; 0 before the first."""
        return 0 if self.image is None else self.image[0] * self.image[1] * self.image[2]

    def put(self, name: str, entry: ImageEntry) -> None:
        """Note a file."""
        self.entries[name] = entry
        if entry.row is not None:
            self.rows = max(self.rows, entry.row + 1)


def state_of(path: Path) -> ImageEntry | None:
    """Return a file's size and time; None for one that cannot be looked at."""
    try:
        status = path.stat()
    except OSError:
        return None
    return ImageEntry(status.st_size, status.st_mtime_ns)


def fingerprint(folder: Path, paths: Sequence[Path]) -> str:
    """Return a digest that changes when a file is added, removed, renamed or written."""
    sha = hashlib.sha256()
    for path in paths:
        state = state_of(path)
        about = [] if state is None else [state.size, state.time]
        sha.update(json.dumps([path.relative_to(folder).as_posix(), *about]).encode())
    return sha.hexdigest()


def cache_name(folder: Path, options: ImageOptions) -> str:
    """Return the name of the cache of a folder's images with these options."""
    key = json.dumps([str(folder), options.size, options.greyscale])
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def read_index(cache: Path) -> ImageIndex | None:
    """Return the index in a cache's folder; None where there is none that can be read."""
    try:
        lines = (cache / INDEX).read_bytes().splitlines(keepends=True)
        head = json.loads(lines[0])
        index = ImageIndex(str(head["folder"]), str(head["pixels"]))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    for line in lines:
        try:
            _take(index, json.loads(line))
        except (ValueError, LookupError, TypeError):
            return index  # without a number of lines: what is appended would follow the damage
    index.lines = len(lines) if lines[-1].endswith(b"\n") else 0
    return index


def _take(index: ImageIndex, line: Any) -> None:
    """Add a line to an index; raises for one that is damaged."""
    if isinstance(line, Mapping):
        image = line.get("image")
        if image is not None:
            height, width, channels = map(int, image)
            index.image = height, width, channels
        return
    name, size, time, row, digest, problem = line
    row = None if row is None else int(row)
    index.put(str(name), ImageEntry(int(size), int(time), row, int(digest), str(problem)))


def write_index(cache: Path, index: ImageIndex) -> None:
    """Write the whole index into a cache's folder.

    Raises:
        StorageError: it cannot be written.
    """
    head = {"folder": index.folder, "pixels": index.pixels, "image": index.image}
    write_atomic(cache / INDEX, _packed([head, *_lines(index.entries)]))
    index.lines = 1 + len(index.entries)


def append_index(cache: Path, index: ImageIndex, names: Sequence[str]) -> None:
    """Add the entries of some files to the index on disk.

    Raises:
        StorageError: they cannot be written.
    """
    lines = _packed([{"image": index.image}, *_lines({n: index.entries[n] for n in names})])
    try:
        with open_private(cache / INDEX, "ab", buffering=0) as file:
            append_whole(file, lines)
            os.fsync(file.fileno())
    except OSError as error:
        raise storage_error(cache / INDEX, error) from error
    index.lines += 1 + len(names)


def _lines(entries: Mapping[str, ImageEntry]) -> Iterable[Any]:
    for name, entry in entries.items():
        yield [name, entry.size, entry.time, entry.row, entry.digest, entry.problem]


def _packed(lines: Iterable[Any]) -> bytes:
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()
