"""uint8 images in a file: an array that is read when it is indexed.

Images are read, not mapped into memory: pages of a map count as memory of the process, and a map of
a file that is cut short kills the process.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgefed.errors import DataError

Indices = npt.NDArray[np.int64]
Pixels = npt.NDArray[np.uint8]


class PixelFile:
    """An open file of images (height, width, channels), one after another.

    While it is open, the file is locked against its removal by ``is_unused``.

    Args:
        path: the file.
        image: height, width and channels of each image.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path, image: tuple[int, int, int]) -> None:
        self.path = path
        self.image = image
        self.image_bytes = int(np.prod(image))
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        # Shared among readers; is_unused, which asks for it exclusively, is refused meanwhile
        with suppress(OSError):  # a file system without locks
            fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            os.close(file)

    def __reduce__(self) -> tuple[type[PixelFile], tuple[Any, ...]]:
        return PixelFile, (self.path, self.image)

    def read(self, rows: Indices) -> Pixels:
        """Return images by number, (rows, height, width, channels).

        Raises:
            DataError: ``data.cut_short``: the file ends before.
        """
        images = np.empty((len(rows), *self.image), np.uint8)
        runs = list(_runs(rows))
        for _, row, count in runs:
            # The disk is asked for all of them before the first one is waited for.
            os.posix_fadvise(
                self._file,
                row * self.image_bytes,
                count * self.image_bytes,
                os.POSIX_FADV_WILLNEED,
            )
        for place, row, count in runs:
            self._fill(images[place : place + count].reshape(-1).data, row * self.image_bytes)
        return images

    def _fill(self, rest: memoryview, offset: int) -> None:
        """Read as many bytes as ``rest`` holds."""
        while rest:
            count = os.preadv(self._file, [rest], offset)
            if not count:
                raise DataError(
                    f"{self.path} is shorter than when it was opened.",
                    code="data.cut_short",
                    hint=f"delete {self.path.parent}: it is built again from the images",
                )
            rest, offset = rest[count:], offset + count


class StoredImages:
    """Images (n, channels, height, width) of a file, as an array that is read when it is indexed.

    NumPy accepts it as an array, and then reads all of it.

    Args:
        file: holds the images.
        rows: numbers of the images in the file, in the order that they have here.
        digests: of the pixels of each of them, uint64.
    """

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(self, file: PixelFile, rows: Indices, digests: npt.NDArray[np.uint64]) -> None:
        self.file = file
        self.rows = rows
        self.digests = digests

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Number of images, channels, height, width."""
        height, width, channels = self.file.image
        return len(self.rows), channels, height, width

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.rows) * self.file.image_bytes

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Pixels:
        """Return the images of a number, a slice, an array of numbers or of choices."""
        rows = self.rows[index]
        images = self.file.read(np.atleast_1d(rows)).transpose(0, 3, 1, 2)
        return images if rows.ndim else images[0]

    def __array__(self, dtype: npt.DTypeLike = None, copy: bool | None = None) -> npt.NDArray[Any]:
        del copy  # what is read is a copy
        return self[:] if dtype is None else self[:].astype(dtype)

    def select(self, index: npt.NDArray[Any]) -> StoredImages:
        """Return some of the images without reading them."""
        return StoredImages(self.file, self.rows[index], self.digests[index])


def is_unused(path: Path) -> bool:
    """Whether no process has a file of images open now."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _runs(rows: Indices) -> Iterator[tuple[int, int, int]]:
    """Yield rows that follow each other: their place, the first row, how many there are."""
    breaks = np.flatnonzero(np.diff(rows) != 1) + 1
    starts = [0, *breaks.tolist()] if len(rows) else []
    ends = [*starts[1:], len(rows)]
    for start, end in zip(starts, ends, strict=False):
        yield start, int(rows[start]), end - start
