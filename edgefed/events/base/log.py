"""Read an event log line by line; of a long log, only its beginning and its end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from edgefed.files.writing import storage_error

HEAD_SHARE = 8
"""Of a log that is cut, one part in so many is its beginning, where the devices are listed."""


@dataclass(frozen=True)
class Log:
    """An event log on disk.

    Attributes:
        path: the file.
        limit: most bytes that are read; None for all.
    """

    path: Path
    limit: int | None = None

    def left_out(self) -> int:
        """Return the number of unread bytes in the middle.

        Raises:
            StorageError: there is no such file, or it cannot be read.
        """
        try:
            size = self.path.stat().st_size
        except OSError as error:
            raise storage_error(self.path, error) from error
        return 0 if self.limit is None else max(0, size - self.limit)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the events as flat values; a line that a crash cut short is left out.

        Raises:
            StorageError: the file cannot be read.
        """
        gap = self.left_out()
        try:
            with self.path.open("rb") as file:
                yield from _parsed(file) if not gap else self._around(file, gap)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def _around(self, file: BinaryIO, gap: int) -> Iterator[dict[str, Any]]:
        head = (self.limit or 0) // HEAD_SHARE
        yield from _parsed(file, head)
        file.seek(head + gap)
        file.readline()  # its beginning was left out
        yield from _parsed(file)


def _parsed(file: BinaryIO, until: int | None = None) -> Iterator[dict[str, Any]]:
    for line in file:
        if until is not None and file.tell() > until:
            return
        try:
            event = json.loads(line) if line.endswith(b"\n") else None
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            yield event
