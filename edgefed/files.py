"""Files that are either whole or absent: written beside, synced, renamed."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from edgefed.errors import StorageError


def write_atomic(path: Path, data: bytes) -> None:
    """Write ``data`` to ``path`` so that a reader, or a restart, sees the old file or the new one.

    Raises:
        StorageError: the disk is full or the folder cannot be written; the old file is intact.
    """
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):  # what stands in the way of writing may stand in this way too
            beside.unlink()
        raise storage_error(path, error, len(data)) from error


def append_whole(file: BinaryIO, data: bytes) -> None:
    """Append all of ``data`` to an unbuffered file, or nothing.

    Raises:
        OSError: the disk does not take it; what it took of it is cut off again.
    """
    start = file.seek(0, os.SEEK_END)
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        with suppress(OSError):
            file.truncate(start)
        raise


def make_folder(path: Path) -> Path:
    """Create a folder and its parents, and return it.

    Raises:
        StorageError: the folder cannot be made.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(path, error) from error
    return path


def free_bytes(path: Path) -> int:
    """Return how much room there is where ``path`` is or would be made.

    Raises:
        StorageError: the disk cannot be asked.
    """
    there = next((each for each in (path, *path.parents) if each.exists()), path)
    try:
        return shutil.disk_usage(there).free
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError, size: int = 0) -> StorageError:
    """Return the error that tells the user what stands in the way of ``path``.

    Args:
        path: of a file or folder.
        error: what the system said.
        size: bytes that were to be written, where that is known.
    """
    if error.errno == errno.EFBIG:
        return StorageError(
            f"{path} is larger than this process or file system may write.",
            code="storage.limit",
            hint="raise the limit on file sizes (ulimit -f); the last committed state is intact",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"The disk is full: cannot write {f'{size:,} bytes to ' if size else ''}{path}.",
            code="storage.full",
            hint="free some space; the last committed state is intact",
        )
    reason = error.strerror or type(error).__name__
    return StorageError(f"Cannot use {path}: {reason}.", hint="check the path and its permissions")
