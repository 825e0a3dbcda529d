"""The coordinator's event log on disk, which survives restarts and shows how long they took.

The log is a folder of files with one entry a line. A file's name is the position of its first
entry. The oldest file is deleted when there are too many. While the coordinator works, it touches
the newest file, so that the file's time tells when a coordinator that was killed was last at work.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, BinaryIO

from pydantic import ValidationError

from edgefed.coordinator.journal.event_journal import EventJournal
from edgefed.errors import StorageError
from edgefed.events.base.event_entries import PAGE, EventEntry, EventFilter, EventPage
from edgefed.events.base.model import Event
from edgefed.events.base.snapshot import LineView, Snapshot
from edgefed.events.state.lines import entry_of
from edgefed.files.writing import append_whole, make_folder, open_private, storage_error
from edgefed.process.clock import Clock, moment_of, timestamp
from edgefed.terminal.units import duration

log = logging.getLogger(__name__)

FOLDER = "log"
"""Name of the log's folder in the coordinator's state directory."""

FILE_BYTES, FILES = 4 * 1024 * 1024, 8
"""Size at which a file is full, and how many are kept: about 150,000 entries."""

BEAT = 2.0
"""Seconds between two signs of life in the time of the newest file."""

SCANNED = 1024 * 1024
"""Bytes that are read for a page at most; a reader continues where it ended."""

PARSED = 10
"""How many times as much as reading a line it costs to parse it."""

BLOCK = 64 * 1024

STOPPED = "the {} stopped"
KILLED = "killed, or its machine stopped"

_BROKEN = (ValueError, ValidationError, RecursionError)

Line = tuple[int, bytes]
"""A line with its position."""


class StoredEvents:
    """The event log; ``take`` is called by one thread at a time, ``page`` by any.

    Args:
        folder: the coordinator's state directory.
        clock: for the time of a restart.
        party: the name of this kind of process in its own words.

    Attributes:
        stopped: the last note of a process that is stopped.

    Raises:
        StorageError: the folder cannot be used.
    """

    def __init__(self, folder: Path, clock: Clock, party: str = "coordinator") -> None:
        self.stopped, self._party = STOPPED.format(party), party
        self._folder = make_folder(folder / FOLDER)
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="sign-of-life", daemon=True)
        self._file: BinaryIO | None = None
        self._bytes = 0
        try:
            bases = self._bases()
            self._alive = _changed(self._path(bases[-1])) if bases else None
        except OSError as error:
            raise storage_error(self._folder, error) from error

    # -- writing ------------------------------------------------------------------------------

    def begin(self, journal: EventJournal) -> None:
        """Store the journal's events from now on, and show signs of life.

        The first event tells how long the coordinator was away, if it was here before.

        Raises:
            StorageError: the log cannot be written.
        """
        try:
            self._file = self._open(max(self._bases(), default=0))
        except OSError as error:
            raise storage_error(self._folder, error) from error
        journal.listen(self.take)
        newest = self.page(EventFilter(routine=True), limit=1).entries
        if self._alive is not None and newest:
            now, since = self._clock.now(), timestamp(self._alive)
            stopped = newest[0].text == self.stopped
            since = newest[0].time if stopped else max(since, newest[0].time)
            away = duration(max(0.0, (now - moment_of(since)).total_seconds()))
            reason = "stopped" if stopped else KILLED
            journal.emit(
                "note",
                level="info" if stopped else "warning",
                text=f"{self._party} away for {away}: {reason}",
                since=since,
            )
        self._thread.start()

    def take(self, event: Event, number: int) -> None:
        """Append the entry of an event; a full disk costs the entry."""
        del number
        entry = entry_of(event)
        if entry is None or self._file is None:
            return
        fields = entry.model_dump(exclude={"position"}, exclude_defaults=True)
        line = f"{json.dumps(fields, ensure_ascii=False)}\n".encode()
        try:
            self._file = self._rotated(self._file)
            append_whole(self._file, line)
            self._bytes += len(line)
        except (OSError, StorageError) as error:
            log.warning("an event was not stored: %s", error)

    def close(self) -> None:
        """Close the log."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._file is not None:
            self._file.close()

    def _beat(self) -> None:
        while not self._stopping.wait(BEAT):
            try:
                os.utime(self._path(self._bases()[-1]))
            except (OSError, IndexError) as error:
                log.debug("no sign of life: %s", error)

    def _rotated(self, file: BinaryIO) -> BinaryIO:
        """Return a new file if this one is full, and delete the oldest of too many."""
        if self._bytes < FILE_BYTES:
            return file
        size = file.seek(0, os.SEEK_END)
        bases = self._bases()
        following = self._open(bases[-1] + size)
        file.close()
        for base in bases[: len(bases) + 1 - FILES]:
            self._path(base).unlink(missing_ok=True)
        return following

    def _open(self, base: int) -> BinaryIO:
        """Open a file to append to; end a line that a kill cut short."""
        file = open_private(self._path(base), "a+b", buffering=0)
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                append_whole(file, b"\n")
        self._bytes = file.seek(0, os.SEEK_END)
        return file

    def _path(self, base: int) -> Path:
        return self._folder / f"{base:015d}.jsonl"

    def _bases(self) -> list[int]:
        names = (path.stem for path in self._folder.glob("*.jsonl"))
        return sorted(int(name) for name in names if name.isdecimal())

    # -- reading ------------------------------------------------------------------------------

    def with_lines(self, snapshot: Snapshot, most: int) -> Snapshot:
        """Return a snapshot with the newest entries as its lines."""
        entries = self.page(EventFilter(), limit=most).entries
        lines = tuple(LineView.model_validate(entry.model_dump()) for entry in entries)
        return snapshot.model_copy(update={"lines": lines})

    def page(
        self,
        wanted: EventFilter,
        *,
        before: int | None = None,
        after: int | None = None,
        limit: int = PAGE,
    ) -> EventPage:
        """Return the entries before a position, newest first, or from one on, oldest first.

        Args:
            wanted: selects entries.
            before: a position; None for the end of the log.
            after: a position from which to read on; None to read backwards.
            limit: most entries. There may be fewer although the log goes on: a page costs a
                bounded number of bytes.

        Raises:
            StorageError: the log cannot be read.
        """
        try:
            bases = self._bases()
            if not bases:
                return EventPage()
            end = bases[-1] + self._path(bases[-1]).stat().st_size
            if after is not None:
                lines = self._forwards(bases, after)
            else:
                lines = self._backwards(bases, end if before is None else before)
            return _page(lines, wanted, end, limit, backwards=after is None)
        except OSError as error:
            raise storage_error(self._folder, error) from error

    def _backwards(self, bases: list[int], before: int) -> Iterator[Line]:
        for base in reversed(bases):
            if base < before:
                yield from _lines_backwards(self._path(base), base, before - base)

    def _forwards(self, bases: list[int], after: int) -> Iterator[Line]:
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            if following is not None and following <= after:
                continue
            with self._path(base).open("rb") as file:
                if after > base:  # to the next beginning of a line
                    file.seek(after - base - 1)
                    file.readline()
                position = base + file.tell()
                for line in file:
                    yield position, line
                    position += len(line)


def _page(
    lines: Iterator[Line], wanted: EventFilter, end: int, limit: int, *, backwards: bool
) -> EventPage:
    entries: list[EventEntry] = []
    may_match, budget = wanted.line_filter(), SCANNED
    for position, line in lines:
        budget -= len(line)
        if may_match(line.decode("utf-8", "replace").lower()):
            budget -= PARSED * len(line)
            entry = _entry(line, position)
            if entry is not None and wanted.matches(entry):
                entries.append(entry)
        if len(entries) >= limit or budget <= 0:
            following = position if backwards else position + len(line)
            return EventPage(entries=tuple(entries), next=following, end=end)
    return EventPage(entries=tuple(entries), end=end)


def _entry(line: bytes, position: int) -> EventEntry | None:
    """Return the entry of a line; None for one that a crash cut short."""
    try:
        fields: Any = json.loads(line)
        return EventEntry.model_validate({**fields, "position": position})
    except (*_BROKEN, TypeError):
        return None


def _lines_backwards(path: Path, base: int, end: int) -> Iterator[Line]:
    """Yield the lines of a file that begin before ``end``, the last one first."""
    try:
        file = path.open("rb")
    except FileNotFoundError:  # deleted meanwhile, as the oldest
        return
    with file:
        start, rest = min(end, path.stat().st_size), b""
        while start > 0:
            begin = max(0, start - BLOCK)
            file.seek(begin)
            block = file.read(start - begin) + rest
            first, *others = block.split(b"\n")
            position = begin + len(block)
            for line in reversed(others):
                position -= len(line)
                if line:
                    yield base + position, line
                position -= 1
            start, rest = begin, first
        if rest:
            yield base, rest


def _changed(path: Path) -> datetime:
    return datetime.fromtimestamp(path.stat().st_mtime, timezone.utc)
