"""The number of the last commit in a file beside the database, to detect lost commits.

SQLite reads a damaged write-ahead log only up to the damage and silently drops all later commits.
The counter is written after each commit. A kill or a power cut can therefore leave it behind the
database, which is harmless, but never ahead of it.
"""

from __future__ import annotations

import logging
import os
import re
import zlib
from pathlib import Path

from edgefed.errors import StorageError
from edgefed.files.writing import PRIVATE_FILE, storage_error

log = logging.getLogger(__name__)

_LINE = re.compile(rb"(\d{20}) ([0-9a-f]{8})\n")


class CommitCounter:
    """A counter in a small file of constant size, overwritten in place.

    Args:
        path: the file; made at the first commit.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def read(self) -> int:
        """Return the last stored number of a commit, 0 without a file.

        Raises:
            StorageError: the file is damaged.
        """
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise storage_error(self._path, error) from error
        match = _LINE.fullmatch(data)
        if match is None or _checksum(match[1]) != match[2]:
            raise StorageError(
                f"{self._path} is damaged.",
                code="storage.damaged",
                hint=f"restore it from a backup; without {self._path.name}, it is not detected"
                " if the last commits are missing",
            )
        return int(match[1])

    def note(self, number: int) -> None:
        """Overwrite the number; failing only weakens the check."""
        digits = b"%020d" % number
        try:
            if self._file is None:
                flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
                self._file = os.open(self._path, flags, PRIVATE_FILE)
            os.pwrite(self._file, digits + b" " + _checksum(digits) + b"\n", 0)
        except OSError as error:
            log.warning("the commit counter %s was not written: %s", self._path, error)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _checksum(digits: bytes) -> bytes:
    return b"%08x" % zlib.crc32(digits)
