"""The telemetry of each device over the last minutes, from the snapshots that the dashboard saw."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from datetime import datetime
from typing import Literal, get_args

from edgefed.events.base.snapshot import DeviceSnapshot, Snapshot
from edgefed.tui.look.text_format import moment

Measure = Literal["temperature", "power", "memory"]
"""The stored measures of a device's health."""

EVERY = 10.0
"""Least seconds between two readings: as often as an agent measures."""

MAX_READINGS = 120
"""Readings that are kept of each device: those of 20 minutes, in 4 KiB."""

_MEASURES: tuple[Measure, ...] = get_args(Measure)
_STRIDE = 1 + len(_MEASURES)


class TelemetryHistory:
    """Keeps readings of every device of the fleet."""

    def __init__(self) -> None:
        self._views: dict[str, DeviceSnapshot] = {}
        self._readings: dict[str, array[float]] = {}

    def take(self, snapshot: Snapshot) -> None:
        """Store a snapshot's readings; an unchanged device costs one comparison."""
        when = moment(snapshot.time)
        if when is None:
            return
        now, views = when.timestamp(), self._views
        for view in snapshot.devices:
            if views.get(view.device) is not view:  # snapshots share the views that did not change
                views[view.device] = view
                self._note(view, now)
        if len(views) > len(snapshot.devices):
            self._forget(snapshot)

    def course(
        self, device: str, measure: Measure, until: datetime, columns: int
    ) -> list[float | None]:
        """Return a value for each of so many equal parts of the known time, oldest first.

        A part without a reading has the value of the one before it; None before the first reading.
        """
        rows = self._rows(device, until)
        if not rows or columns < 1:
            return []
        place = 1 + _MEASURES.index(measure)
        start, end = rows[0][0], until.timestamp()
        width = max(end - start, EVERY) / columns
        values: list[float | None] = [None] * columns
        for row in rows:
            if not math.isnan(row[place]):
                values[min(columns - 1, int((row[0] - start) / width))] = row[place]
        return _carried(values)

    def span(self, device: str, until: datetime) -> float:
        """Return seconds since the oldest reading of a device; 0 without one."""
        rows = self._rows(device, until)
        return max(0.0, until.timestamp() - rows[0][0]) if rows else 0.0

    def _note(self, view: DeviceSnapshot, now: float) -> None:
        values = [getattr(view, measure) for measure in _MEASURES]
        if view.state == "lost" or all(value is None for value in values):
            return
        known = self._readings.setdefault(view.device, array("d"))
        if known and now < known[-_STRIDE]:  # a clock was set back
            del known[:]
        if known and now < known[-_STRIDE] + EVERY:
            return
        known.append(now)
        known.extend(math.nan if value is None else float(value) for value in values)
        if len(known) > _STRIDE * MAX_READINGS:
            del known[:_STRIDE]

    def _forget(self, snapshot: Snapshot) -> None:
        there = {view.device for view in snapshot.devices}
        for device in self._views.keys() - there:
            del self._views[device]
            self._readings.pop(device, None)

    def _rows(self, device: str, until: datetime) -> list[Sequence[float]]:
        """Return the readings up to a time: while the display is frozen, more come."""
        known, end = self._readings.get(device, array("d")), until.timestamp()
        rows = (known[k : k + _STRIDE] for k in range(0, len(known), _STRIDE))
        return [row for row in rows if row[0] <= end]


def _carried(values: list[float | None]) -> list[float | None]:
    last: float | None = None
    carried = []
    for value in values:
        last = last if value is None else value
        carried.append(last)
    return carried
