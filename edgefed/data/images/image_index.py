"""The index of a cache of decoded images: its files, and the progress of the build."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from edgefed.data.images.image_options import ImageOptions
from edgefed.files.writing import write_atomic

INDEX = "index.json"


class ImageIndex(BaseModel):
    """State of a cache.

    Attributes:
        folder: of the image files.
        files: fingerprint of their names, sizes and times.
        count: number of files.
        done: number of decoded files, from the first.
        image: height, width and channels of each image; None before the first.
        unreadable: numbers of the files that are no images.
        digest: of rows of all images so far.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    folder: str
    files: str
    count: int
    done: int = 0
    image: tuple[int, int, int] | None = None
    unreadable: tuple[int, ...] = ()
    digest: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether all files are decoded."""
        return self.done == self.count

    @property
    def image_bytes(self) -> int:
        """Bytes of an image; 0 before the first."""
        return 0 if self.image is None else self.image[0] * self.image[1] * self.image[2]


def fingerprint(folder: Path, paths: Sequence[Path]) -> str:
    """Return a digest that changes when a file is added, removed, renamed or written.

    Raises:
        OSError: a file's size and time cannot be read.
    """
    sha = hashlib.sha256()
    for path in paths:
        try:
            stat = path.stat()
            about = [path.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns]
        except (FileNotFoundError, PermissionError):  # it has gone, or may not be looked at
            about = [path.relative_to(folder).as_posix()]
        sha.update(json.dumps(about).encode())
    return sha.hexdigest()


def cache_name(folder: Path, options: ImageOptions) -> str:
    """Return the name of the cache of a folder's images with these options."""
    key = json.dumps([str(folder), options.size, options.greyscale])
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def read_index(folder: Path) -> ImageIndex | None:
    """Return the index in a cache's folder; None where there is none that can be read."""
    try:
        return ImageIndex.model_validate_json((folder / INDEX).read_bytes())
    except (OSError, ValidationError):
        return None


def write_index(folder: Path, index: ImageIndex) -> None:
    """Write the index into a cache's folder.

    Raises:
        StorageError: it cannot be written.
    """
    write_atomic(folder / INDEX, index.model_dump_json().encode())
