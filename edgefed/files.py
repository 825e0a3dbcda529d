"""Write files atomically: to a temporary file beside, synced, then renamed."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from edgefed.errors import StorageError

_PART = re.compile(r"\..+\.[0-9a-f]{8}\.part")
_cleaned: set[Path] = set()
_cleaned_lock = threading.Lock()


def write_atomic(path: Path, data: bytes, *, sync: bool = True, mode: int | None = None) -> None:
    """Write ``data`` to ``path`` so that a reader, or a restart, sees the old file or the new one.

    The first write into a folder also removes what killed writers left there.

    Args:
        path: the file.
        data: all of it.
        sync: whether to wait until the disk has it; without, a power cut may leave a damaged file.
        mode: permissions of the file; None for those of a new file.

    Raises:
        StorageError: the disk is full or the folder cannot be written; the old file is intact.
    """
    beside: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _clean_once(path.parent)
        beside, file = _open_beside(path)
        with file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            if sync:
                os.fsync(file.fileno())
            beside.replace(path)  # before the lock is released with the file
    except BaseException as error:  # Ctrl-C too
        if beside is not None:
            with suppress(OSError):  # what prevents the write may prevent this too
                beside.unlink()
        if isinstance(error, OSError):
            raise storage_error(path, error, len(data)) from error
        raise


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


def remove_partial_files(folder: Path) -> None:
    """Remove the files that killed writers left half-written; those of live writers are locked.

    Raises:
        OSError: the folder cannot be read.
    """
    for path in folder.iterdir():
        if _PART.fullmatch(path.name):
            with suppress(OSError), path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()


def _clean_once(folder: Path) -> None:
    """Remove partial files from a folder, once in the life of this process."""
    with _cleaned_lock:
        if folder in _cleaned:
            return
        _cleaned.add(folder)
    with suppress(OSError):  # a folder that can be written but not listed
        remove_partial_files(folder)


def _open_beside(path: Path) -> tuple[Path, BinaryIO]:
    """Open a new file beside ``path``, locked for as long as it is open.

    Another process may find the file in the moment before it is locked, take it for an abandoned
    one and remove it; then the next one is tried.
    """
    while True:
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            file = beside.open("xb")
            with suppress(OSError):  # without locks on this file system nobody removes it either
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                return beside, file
            file.close()
        except KeyboardInterrupt:
            beside.unlink(missing_ok=True)
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


def sync_folder(folder: Path) -> None:
    """Wait until the disk has the names in a folder, as after a rename.

    Raises:
        StorageError: the folder cannot be read, or the disk does not take it.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise storage_error(folder, error) from error


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
    """Return the error that tells the user why ``path`` cannot be used.

    Args:
        path: of a file or folder.
        error: what the system said.
        size: bytes that were to be written, where that is known.
    """
    if error.errno == errno.EFBIG:
        return StorageError(
            f"{path} exceeds the largest file that this process or file system can write.",
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


def folder_exists(path: Path) -> bool:
    """Whether a path is a folder; one that cannot be looked for, as of a long name, is not."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def file_exists(path: Path) -> bool:
    """Whether a path is a regular file; one that cannot be looked for is not."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
