"""Emit events: write them to a file, fold them into the snapshot, and notify listeners."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from edgefed.events.base.device_columns import LASTING, roster_parts
from edgefed.events.base.model import Event, EventKind
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.files.writing import append_whole, make_folder, open_private
from edgefed.process.clock import Clock, timestamp

log = logging.getLogger(__name__)


class EventJournal:
    """Emits events; safe from any thread. Listeners hear them in order, and must not wait.

    Args:
        fleet: name shown with the snapshot.
        clock: for the events' times.
    """

    def __init__(self, fleet: str, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.RLock()  # a listener may look at the snapshot
        self._builder = SnapshotBuilder(Snapshot(fleet=fleet, time=timestamp(clock.now())))
        self._file: BinaryIO | None = None
        self._listeners: list[Callable[[Event, int], None]] = []
        self._number = 0
        self._outage: Event | None = None

    @property
    def snapshot(self) -> Snapshot:
        """The state of the fleet after all events so far."""
        with self._lock:
            return self._builder.snapshot()

    @property
    def number(self) -> int:
        """How many events there were."""
        return self._number

    def excluded(self) -> dict[str, str]:
        """Return why the run does not ask a device, for each that it does not ask."""
        with self._lock:
            return self._builder.devices.excluded()

    def current(self) -> tuple[Snapshot, int]:
        """Return the snapshot and the number of events in it, as one."""
        with self._lock:
            return self._builder.snapshot(), self._number

    def begin_with(self, make: Callable[[Snapshot], Snapshot]) -> None:
        """Change the snapshot to the state on disk; clients miss a number, and request it again."""
        with self._lock:
            self._builder = SnapshotBuilder(make(self._builder.snapshot()))
            self._number += 1 if self._number else 0  # nobody knows a snapshot before event 1

    def now(self) -> str:
        """Return the time that an event would bear now."""
        return timestamp(self._clock.now())

    def listen(self, listener: Callable[[Event, int], None]) -> None:
        """Call ``listener`` with every later event and its number."""
        self._listeners.append(listener)

    def open(self, path: Path) -> None:
        """Append events to a run's ``events.jsonl`` from now on.

        It begins with the connected devices, which joined before the run and may not announce
        themselves again. An outage before a run was taken up again precedes them.
        """
        with self._lock:
            self._close()
            make_folder(path.parent)
            self._file = open_private(path, "a+b", buffering=0)
            self._end_line(self._file)
            if self._outage is not None and self._file.tell():
                self._write(self._outage)
            self._outage = None
            there = (view for view in self.snapshot.devices if view.state != "lost")
            for part in roster_parts(view.model_dump(include=set(LASTING)) for view in there):
                self._write(self._event("roster", part))

    def close(self) -> None:
        """Close the run's file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def emit(self, kind: EventKind, **fields: Any) -> None:
        """Make an event. A full disk costs the line in the file, never the run."""
        with self._lock:
            event = self._event(kind, fields)
            self._builder.apply(event)
            self._number += 1
            number = self._number
            if kind == "note" and fields.get("since") and self._file is None:
                self._outage = event
            self._write(event)
            for listener in self._listeners:
                listener(event, number)

    def _event(self, kind: EventKind, fields: dict[str, Any]) -> Event:
        return Event(time=self.now(), kind=kind, fields=fields)

    def _end_line(self, file: BinaryIO) -> None:
        """End a line that a kill cut short, so that the next event has a line of its own."""
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                self._append(file, b"\n")

    def _write(self, event: Event) -> None:
        if self._file is not None:
            self._append(self._file, f"{event.line()}\n".encode())

    def _append(self, file: BinaryIO, line: bytes) -> None:
        try:
            append_whole(file, line)
        except OSError as error:
            log.warning("an event was not written: %s", error)
