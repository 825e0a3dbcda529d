"""Emit events: to a file, the snapshot and listeners; and log the important ones."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from edgefed.events.base.alert_events import alert_in_words
from edgefed.events.base.device_columns import LASTING, roster_parts
from edgefed.events.base.model import Event, EventKind
from edgefed.events.base.snapshot import Snapshot
from edgefed.events.state.fold import SnapshotBuilder
from edgefed.events.state.lines import describe
from edgefed.files.writing import append_whole, make_folder, open_private
from edgefed.process.clock import Clock, timestamp
from edgefed.terminal.units import counted, score_of

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
        self._listeners: list[tuple[Callable[[Event, int], None], tuple[EventKind, ...]]] = []
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

    def listen(self, listener: Callable[[Event, int], None], *kinds: EventKind) -> None:
        """Call ``listener`` with every later event, of these kinds if any, and its number."""
        self._listeners.append((listener, kinds))

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
            for listener, kinds in self._listeners:
                if not kinds or kind in kinds:
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


WINDOW = 10.0
"""Seconds for which lines about devices are counted."""

MAX_LINES = 50
"""Most lines about devices in a window, so that a large fleet that reconnects does not fill the
disk."""

_SERIOUS = {"lost", "failed", "rejected", "refused"}
_ENDED = ("finished", "aborted", "failed")


class EventLog:
    """Listens to a journal: runs, rounds, bounties, alerts, notes, devices, and bad replies.

    Args:
        clock: for the rate of lines about devices.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._window = clock.monotonic()
        self._lines = 0
        self._rounds = 0
        self._status = ("", "", "")

    def take(self, event: Event, number: int) -> None:
        """Log an event, if it is important enough."""
        del number
        if self._lines and self._clock.monotonic() - self._window >= WINDOW:
            self._end_window()
        fields = event.fields
        match event.kind:
            case "run":
                self._run(fields)
            case "scored" | "labels":
                self._of_run(event)
            case "note":
                serious = fields.get("level") == "warning"
                log.log(logging.WARNING if serious else logging.INFO, "%s", fields["text"])
            case "alert":
                level = logging.INFO if fields["over"] else logging.WARNING
                log.log(level, "%s", alert_in_words(fields))
            case "device":
                self._device(event, str(fields.get("state", "")))
            case "reply" if fields["outcome"] != "accepted":
                self._device(event, fields["outcome"])

    def _run(self, fields: dict[str, Any]) -> None:
        """Log a run whose status has changed."""
        run, status, reason = fields["run"], fields.get("status", ""), fields.get("reason", "")
        self._rounds = fields.get("rounds", self._rounds)
        if not status or self._status == (run, status, reason):
            return
        self._status = (run, status, reason)
        parts = [f"run {run} {status}"]
        if status in _ENDED and "round" in fields:
            parts[0] += f" after round {fields['round']} of {self._rounds}"
            parts.append(score_of(fields))
        elif "algorithm" in fields:
            parts.append(f"{fields['algorithm']}, {counted(self._rounds, 'round')}")
        line = ", ".join(part for part in parts if part)
        level = logging.WARNING if status == "failed" else logging.INFO
        log.log(level, "%s%s", line, f": {reason}" if reason else "")

    def _of_run(self, event: Event) -> None:
        line = describe(event)
        if line is not None:
            log.info("run %s: %s", event.fields["run"], line.text)

    def _device(self, event: Event, state: str) -> None:
        """Log a line about a device, unless there were too many."""
        line = describe(event)
        if line is None:
            return
        if not self._lines:
            self._window = self._clock.monotonic()
        self._lines += 1
        if self._lines <= MAX_LINES:
            level = logging.WARNING if state in _SERIOUS else logging.INFO
            log.log(level, "device %s", " ".join(line.text.split()))

    def _end_window(self) -> None:
        left_out, self._lines = self._lines - MAX_LINES, 0
        if left_out > 0:
            log.warning("%d more lines about devices were omitted", left_out)
