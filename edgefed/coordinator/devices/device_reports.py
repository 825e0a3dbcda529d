"""Progress and health of many devices in few events: reports are collected and emitted together.

A fleet of 200 training devices sends 400 progress reports a second. Each event is written to disk,
published, and read by every dashboard.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from edgefed.events.base.device_columns import roster_parts
from edgefed.process.clock import Clock

EVERY = 0.25
"""Seconds for which reports are collected after the last ones were emitted."""


class DeviceReports:
    """Emits the first report at once, and later ones together; safe from any thread.

    Args:
        emit: makes an event, given its kind and its fields; calls no method of this object.
        clock: source of the time.
    """

    def __init__(self, emit: Callable[..., None], clock: Clock) -> None:
        self._emit = emit
        self._clock = clock
        self._lock = threading.Lock()
        self._emitted = -EVERY
        self._waiting: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}

    def add(self, device: str, **fields: Any) -> None:
        """Take a device's report; it replaces a waiting one of the same device and fields."""
        with self._lock:
            self._waiting.setdefault(tuple(fields), {})[device] = {"device": device, **fields}
        self.due()

    def drop(self, device: str, *names: str) -> None:
        """Drop the waiting reports of a device; with names, only those with all these fields."""
        with self._lock:
            for fields, rows in self._waiting.items():
                if set(names) <= set(fields):
                    rows.pop(device, None)

    def next_due(self) -> float | None:
        """Return the monotonic second at which ``due`` has something to emit; None for never."""
        with self._lock:
            return self._emitted + EVERY if any(self._waiting.values()) else None

    def due(self) -> None:
        """Emit the waiting reports, unless some were emitted a moment ago."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._emitted < EVERY or not any(self._waiting.values()):
                return
            waiting, self._waiting, self._emitted = self._waiting, {}, now
            # Under the lock: who drops a device's reports may tell of its end right after.
            for rows in waiting.values():
                self._emit_all(list(rows.values()))

    def _emit_all(self, rows: list[dict[str, Any]]) -> None:
        if len(rows) == 1:
            self._emit("device", **rows[0])
            return
        for part in roster_parts(rows):
            self._emit("roster", **part)
