"""Files that are either whole or absent: written beside, synced, renamed."""

from __future__ import annotations

import errno
import os
import uuid
from contextlib import suppress
from pathlib import Path

from edgefed.errors import StorageError


def write_atomic(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write ``data`` to ``path`` so that a reader, or a restart, sees the old file or the new one.

    Args:
        path: the file.
        data: all of it.
        sync: whether to wait until the disk has it; without, a power cut may leave a damaged file.

    Raises:
        StorageError: the disk is full or the folder cannot be written; the old file is intact.
    """
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        with suppress(OSError):  # what stands in the way of writing may stand in this way too
            beside.unlink()
        raise storage_error(path, error) from error


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


def storage_error(path: Path, error: OSError) -> StorageError:
    """Return the error that tells the user what stands in the way of ``path``."""
    if error.errno == errno.EFBIG:
        return StorageError(
            f"{path} is larger than this process or file system may write.",
            code="storage.full",
            hint="raise the limit on file sizes (ulimit -f); the last committed state is intact",
        )
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StorageError(
            f"The disk is full: cannot write {path}.",
            code="storage.full",
            hint="free some space; the last committed state is intact",
        )
    reason = error.strerror or type(error).__name__
    return StorageError(f"Cannot use {path}: {reason}.", hint="check the path and its permissions")
