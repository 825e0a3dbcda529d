"""Write files atomically: to a temporary file in the same folder, synced, then renamed.

State and secrets are for their owner only: files have the mode 600 and folders 700, with any umask.
Only an output that a user asks for by its path has the mode that the umask leaves.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast
from weakref import WeakValueDictionary

from edgefed.errors import StorageError

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700

STATE_ENTRIES = frozenset(
    ("agents", "broker", "coordinator", "dashboard.json", "data", "demo", "logs", "mlflow")
).union(
    (".restore", "replaced", "simulations", "tensorboard", "trackers", "trust", "updates", "wandb")
)
"""The entries that EdgeFed's programs make in the state folder."""

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_PART = re.compile(r"\..+\.[0-9a-f]{8}\.part")
_cleaned: set[Path] = set()
_cleaned_lock = threading.Lock()
_held: WeakValueDictionary[Path, BinaryIO] = WeakValueDictionary()
os.register_at_fork(after_in_child=_held.clear)  # a child may have closed the files


def write_atomic(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Write ``data`` to ``path`` so that a reader, or a restart, sees the old file or the new one.

    Only the owner can read the file and the folders that are made for it. The first write into a
    folder also removes the temporary files of killed writers.

    Args:
        path: the file.
        data: all of it.
        sync: whether to wait for the disk; without, a power cut may leave a damaged file.

    Raises:
        StorageError: the disk is full or the folder cannot be written; the old file is intact.
    """
    _write(path, data, sync=sync, private=True)


def write_shared(path: Path, data: bytes) -> None:
    """Write a file that another user's program may have been allowed to read.

    As ``write_atomic``, but a file that exists keeps its mode, owner and access list.

    Raises:
        StorageError: as ``write_atomic``.
    """
    with _replacing(path, len(data), sync=True, private=True, keep_rights=True) as file:
        file.write(data)


def write_output(path: Path, data: bytes) -> None:
    """Write a file that a user asked for by its path, as ``write_atomic`` does.

    The file and the folders that are made for it have the modes that the umask leaves.

    Raises:
        StorageError: as ``write_atomic``.
    """
    _write(path, data, sync=True, private=False)


def _write(path: Path, data: bytes, *, sync: bool, private: bool) -> None:
    with _replacing(path, len(data), sync=sync, private=private) as file:
        file.write(data)


@contextmanager
def private_output(path: Path, size: int = 0, *, sync: bool = True) -> Iterator[BinaryIO]:
    """Yield a file that gets the name ``path`` at the end of the block, unless that raises.

    As ``write_atomic``, for data that do not fit into memory, or are not copied. ``size`` is their
    number of bytes, where it is known.

    Raises:
        StorageError: the disk is full or the folder cannot be written; the old file is intact.
    """
    with _replacing(path, size, sync=sync, private=True) as file:
        yield file


@contextmanager
def _replacing(
    path: Path, size: int, *, sync: bool, private: bool, keep_rights: bool = False
) -> Iterator[BinaryIO]:
    """Yield a new file beside ``path`` that replaces it at the end of the block."""
    beside: Path | None = None
    try:
        _make_folders(path.parent, private=private)
        _clean_once(path.parent)
        beside, file = _open_beside(path, private=private)
        if keep_rights and path.exists():
            _copy_rights(path, beside)
        with file:
            yield file
            file.flush()
            if sync:
                os.fsync(file.fileno())
            beside.replace(path)  # before the lock is released with the file
    except BaseException as error:  # Ctrl-C too
        if beside is not None:
            with suppress(OSError):  # what prevents the write may prevent this too
                beside.unlink()
        if isinstance(error, OSError):
            raise storage_error(path, error, size) from error
        raise


def _copy_rights(source: Path, target: Path) -> None:
    """Give a file the owner, mode and access list of another, as far as this user may."""
    status = source.stat()
    with suppress(OSError):  # only root gives files away; a group may be one of this user's
        os.chown(target, status.st_uid if os.geteuid() == 0 else -1, status.st_gid)
    shutil.copystat(source, target)  # on Linux with extended attributes, which hold access lists


def open_private(path: Path, mode: str, *, buffering: int = -1) -> BinaryIO:
    """Open a file in a binary mode as ``open`` does; only the owner can read one that it creates.

    Raises:
        OSError: the file cannot be opened.
    """
    opener = partial(os.open, mode=PRIVATE_FILE)
    return cast("BinaryIO", open(path, mode, buffering, opener=opener))


def append_whole(file: BinaryIO, data: bytes) -> None:
    """Append all of ``data`` to an unbuffered file that is open for appending, or nothing.

    Raises:
        OSError: the disk does not take it; a part that it took is cut off again.
    """
    rest = memoryview(data)
    try:
        while rest:
            rest = rest[file.write(rest) :]
    except OSError:
        # Back to the length before this call: what was taken of the data is cut off
        with suppress(OSError):
            file.truncate(file.seek(0, os.SEEK_END) - len(data) + len(rest))
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


def _open_beside(path: Path, *, private: bool) -> tuple[Path, BinaryIO]:
    """Open a new file beside ``path``, locked for as long as it is open.

    Another process may find the file in the moment before it is locked, take it for an abandoned
    one and remove it; then the next one is tried.
    """
    while True:
        beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
        try:
            file = open_private(beside, "xb") if private else beside.open("xb")
            with suppress(OSError):  # without locks on this file system nobody removes it either
                fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:
                return beside, file
            file.close()
        except KeyboardInterrupt:
            beside.unlink(missing_ok=True)
            raise


def make_folder(path: Path, *, private: bool = True) -> Path:
    """Create a folder and its parents, and return it.

    Args:
        path: the folder; one that exists keeps its mode.
        private: whether only the owner can use the folders that are made; otherwise they have the
            mode that the umask leaves, like outputs that a user asks for by their path.

    Raises:
        StorageError: the folder cannot be made.
    """
    try:
        _make_folders(path, private=private)
    except OSError as error:
        raise storage_error(path, error) from error
    return path


def _make_folders(path: Path, *, private: bool) -> None:
    if path.is_dir():  # almost always, and before every write
        return
    check_in_place(path)
    missing = [folder for folder in (path, *path.parents) if not folder.exists()] if private else []
    for folder in reversed(missing):  # the parents that mkdir makes have the umask's mode
        folder.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)
    path.mkdir(parents=True, exist_ok=True)


def hold(lock: Path, file: BinaryIO | None) -> None:
    """Have nothing written in place of a folder that is moved away while this process uses it.

    Args:
        lock: a file in the folder.
        file: the same file, open; None when the folder is used no longer.
    """
    if file is None:
        _held.pop(lock.absolute(), None)
    else:
        _held[lock.absolute()] = file


def check_in_place(path: Path) -> None:
    """Check that the folder of a path that this process holds is still there.

    Raises:
        StorageError: ``storage.moved``.
    """
    for lock, file in tuple(_held.items()):
        try:
            there = os.path.samestat(lock.stat(), os.fstat(file.fileno()))
        except OSError:
            there = False
        if not there and path.absolute().is_relative_to(lock.parent):
            raise StorageError(
                f"{lock.parent} was moved or deleted while a program uses it.",
                code="storage.moved",
                hint="move it back, and the program goes on; if it is gone, start it again",
            )


def takes_writes(path: Path) -> bool:
    """Whether files may be made at a path: it is in its place, and not on a read-only disk."""
    try:
        check_in_place(path)
    except StorageError:
        return False
    return os.access(next(folder for folder in (path, *path.parents) if folder.exists()), os.W_OK)


def make_state_private(state: Path) -> None:
    """Take the rights of group and others from a state folder that an older version wrote.

    Only entries that EdgeFed makes are changed, and the folder itself if it has no others. Files
    that a Mosquitto of another user may be allowed to read keep their modes. So do private keys:
    one that others could read is refused where it is used. Entries that cannot be changed or belong
    to another user stay as they are; so do the targets of links.

    Args:
        state: the folder of the settings; may be missing.
    """
    with suppress(OSError):
        entries = {entry.name: entry for entry in os.scandir(state)}
        for name in STATE_ENTRIES.intersection(entries):
            _make_private(entries[name])
        sticky = state.lstat().st_mode & stat.S_ISVTX
        if STATE_ENTRIES.issuperset(entries) and not sticky:
            _close(state)


def _make_private(entry: os.DirEntry[str]) -> None:
    """Make a file private, or a folder and its contents.

    A folder is made private before its contents, so that other users cannot replace those by links.
    """
    with suppress(OSError):  # it is gone
        if entry.is_symlink() or entry.name.endswith(".pem"):
            return
        _close(Path(entry.path))
        if entry.is_dir() and not _is_brokers(Path(entry.path)):
            with os.scandir(entry.path) as inner:
                for child in inner:
                    _make_private(child)


def _is_brokers(path: Path) -> bool:
    """Whether a folder is ``trust/FLEET/broker`` or ``trust/FLEET/access``, for a broker."""
    return path.parent.parent.name == "trust" and path.name in ("broker", "access")


def _close(path: Path) -> None:
    """Take the rights of others from one file or folder if it is this user's."""
    status = path.lstat()
    linked = stat.S_ISREG(status.st_mode) and status.st_nlink > 1
    if status.st_mode & _OTHERS and status.st_uid == os.geteuid() and not linked:
        path.chmod(status.st_mode & PRIVATE_FOLDER)


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


def file_states(path: Path) -> Iterator[os.stat_result]:
    """Yield the state of a file, or of each file below a folder; removed ones are left out."""
    inside = (Path(root, name) for root, _, names in os.walk(path) for name in names)
    for file in inside if path.is_dir() else (path,):
        with suppress(OSError):
            yield file.lstat()


def free_bytes(path: Path) -> int:
    """Return the free space where ``path`` is or would be made.

    Raises:
        StorageError: the disk cannot be asked.
    """
    there = next((folder for folder in (path, *path.parents) if folder.exists()), path)
    try:
        return shutil.disk_usage(there).free
    except OSError as error:
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError, size: int = 0) -> StorageError:
    """Return the error that tells the user why ``path`` cannot be used.

    Args:
        path: of a file or folder.
        error: of the system.
        size: bytes that were to be written, where known.
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
    if error.errno == errno.EROFS:
        return StorageError(
            f"Cannot write {path}: Read-only file system.",
            code="storage.read_only",
            hint="mount it writable again; dmesg shows whether the disk is damaged",
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
