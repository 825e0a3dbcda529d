"""Lock a folder, so that only one process uses it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from edgefed.errors import NotAllowedError, StorageError
from edgefed.files.writing import hold, make_folder, open_private, storage_error


class FolderLock:
    """Locks a folder until ``release`` or any end of the process.

    Args:
        folder: to lock.
        owner: name of the program, for the error message of another one.
        option: the option with which another folder is chosen.

    Raises:
        NotAllowedError: another process holds it.
    """

    def __init__(self, folder: Path, owner: str, option: str = "--state") -> None:
        path = self._path = make_folder(folder) / "lock"
        try:
            self._file = open_private(path, "a+b")
        except OSError as error:
            raise storage_error(path, error) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # The holder has written its name into the file
            self._file.seek(0)
            holder = self._file.read().decode(errors="replace").strip() or "another process"
            self._file.close()
            raise NotAllowedError(
                f"{folder} is in use by {holder}.",
                code="state.locked",
                hint=f"stop that process, or choose another folder with {option}",
            ) from error
        # Only under the lock: until then the text tells who holds it
        with suppress(OSError):  # a full disk; who holds it is only told
            self._file.truncate(0)
            self._file.write(f"{owner}, process {os.getpid()}".encode())
            self._file.flush()
        hold(path, self._file)

    def release(self) -> None:
        """Release the lock."""
        hold(self._path, None)
        with suppress(OSError):  # what a full disk did not take is tried again
            self._file.close()


def is_locked(folder: Path) -> bool:
    """Whether a process holds a folder now."""
    try:
        with open_private(folder / "lock", "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


@contextmanager
def waiting_lock(folder: Path) -> Iterator[None]:
    """Let one process at a time into a ``with`` block of this folder; others wait.

    A folder that cannot be written, or whose file system has no locks, keeps nobody out.
    """
    with ExitStack() as opened:
        with suppress(OSError, StorageError):
            path = make_folder(folder, private=False) / ".lock"
            file = opened.enter_context(open_private(path, "ab"))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
