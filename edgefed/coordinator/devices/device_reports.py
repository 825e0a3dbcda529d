"""Events about devices: progress and health of many in few events, and the fields of a birth.

A fleet of 200 training devices sends 400 progress reports a second. Each event is written to disk,
published, and read by every dashboard.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from edgefed.events.base.coordinator_states import CHANGED_DATA, REFUSED_DATA
from edgefed.events.base.device_columns import roster_parts
from edgefed.process.clock import Clock
from edgefed.wire.messages import Birth

EVERY = 0.25
"""Seconds for which reports are collected after the last ones were emitted."""


class DeviceReports:
    """Emits the first report at once, and later ones together; safe from any thread.

    Args:
        emit: makes an event, given its kind and its fields; calls no method of this object.
        clock: source of the time.

    Attributes:
        next_due: the monotonic second at which ``due`` may have something to emit; None for never.
    """

    def __init__(self, emit: Callable[..., None], clock: Clock) -> None:
        self._emit = emit
        self._clock = clock
        self._lock = threading.Lock()
        self._emitted = -EVERY
        self._waiting: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
        self.next_due: float | None = None

    def add(self, device: str, **fields: Any) -> None:
        """Take a device's report; it replaces a waiting one of the same device and fields."""
        with self._lock:
            self._waiting.setdefault(tuple(fields), {})[device] = {"device": device, **fields}
            self.next_due = self._emitted + EVERY
        self.due()

    def drop(self, device: str, *names: str) -> None:
        """Drop the waiting reports of a device; with names, only those with all these fields."""
        with self._lock:
            for fields, rows in self._waiting.items():
                if set(names) <= set(fields):
                    rows.pop(device, None)

    def due(self) -> None:
        """Emit the waiting reports, unless some were emitted a moment ago."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._emitted < EVERY:
                return
            self.next_due = None
            if not any(self._waiting.values()):
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


def news_of_data(reason: str) -> dict[str, bool]:
    """Return the field of an event for a reason about a device's data; nothing for another one."""
    fields = {REFUSED_DATA: "data_refused", CHANGED_DATA: "data_changed"}
    return {field: True for begin, field in fields.items() if reason.startswith(begin)}


_OF_DATA = {"samples", "held_out", "labels", "class_names", "channels", "ignored"}


def data_fields(birth: Birth) -> dict[str, Any]:
    """Return the fields of a birth about the device's data."""
    return birth.model_dump(include=_OF_DATA)


def birth_fields(device: str, birth: Birth) -> dict[str, Any]:
    """Return the fields of a ``device`` event about a device that has joined."""
    fields = birth.model_dump(exclude={"session", "status"})
    said = {"state": "idle", "fraction": 0.0, "reason": "", "joined": True}
    return {"device": device, **said, **fields}
