"""Applies the limits of a device's owner: looks at the sensors, and keeps the use of the day."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date, tzinfo
from pathlib import Path

from device_agent.limits.decision import FIRST_YEAR, DayUse, Pause, Readings, decide
from edgefed.config.fleet.when_settings import WhenSettings
from edgefed.errors import StorageError
from edgefed.files.writing import write_atomic
from edgefed.process.clock import Clock

log = logging.getLogger(__name__)

FILE = "today.json"

LOOK_EVERY = 2.0
"""Seconds between two looks at the sensors."""

WRITE_EVERY = 60.0
"""Seconds after which bytes are written; a kill loses those that came later."""

_SENSOR_OF = {
    "highest_load": "load",
    "on_mains": "mains",
    "least_battery": "battery",
    "highest_temperature": "temperature",
    "least_memory": "memory",
    "least_disk": "disk",
    "metered": "metered",
}
"""The reading that a limit needs."""


class TrainingPolicy:
    """Whether the device may train; owned by one thread.

    Args:
        when: the owner's limits.
        folder: of the device, for the use of the day.
        readings: reads the sensors.
        clock: for the hours and days.
        zone: the device's time zone; None for that of this machine.

    Attributes:
        pause: why the device may not train, as of the last look; None if it may.
        next_due: the monotonic second of the next look; ``math.inf`` where there are no limits.
    """

    def __init__(
        self,
        when: WhenSettings,
        folder: Path,
        readings: Callable[[], Readings],
        clock: Clock,
        zone: tzinfo | None = None,
    ) -> None:
        self.pause: Pause | None = None
        self._when = when
        self._file = folder / FILE
        self._readings = readings
        self._clock = clock
        self._zone = zone
        self._is_limited = when.limited
        self._use = _read(self._file) if self._is_limited else DayUse()
        self._written = self._use
        self._moved = 0
        self._next_write = clock.monotonic()
        self.next_due = self._next_write if self._is_limited else math.inf
        self._is_first = True

    def due(self, now: float, moved: int) -> bool:
        """Look at the sensors if it is time; return whether the decision has changed.

        Args:
            now: monotonic second.
            moved: payload bytes that this process has sent and received.
        """
        if now < self.next_due:
            return False
        self.next_due = now + LOOK_EVERY
        self._turn_day()
        self._use = replace(self._use, bytes=self._use.bytes + moved - self._moved)
        self._moved = moved
        if now >= self._next_write:
            self._next_write = now + WRITE_EVERY
            self.save()
        return self._decide()

    def _decide(self) -> bool:
        readings, before = self._readings(), self.pause
        if self._is_first:
            self._is_first = False
            _warn_of_lacking(self._when, readings)
        after = decide(self._when, readings, self._use, self._clock.now(), self._zone, before)
        same = after == before or (
            after is not None
            and before is not None
            and (after.limits, after.until) == (before.limits, before.until)
        )
        if not same:  # a reading that moves is no news
            self.pause = after
        return not same

    def trained(self, run: str, number: int) -> bool:
        """Count a round that the device has trained in, once; return whether the decision changed.

        It is written down before the device's answer leaves.
        """
        if not self._is_limited or self._use.last == (run, number):
            return False
        self._turn_day()
        self._use = replace(self._use, rounds=self._use.rounds + 1, last=(run, number))
        self.save()
        return self._decide()

    def _turn_day(self) -> None:
        """Begin a day; a clock that is not set begins none."""
        today = self._clock.now().astimezone(self._zone).date()
        if today.year >= FIRST_YEAR and today != self._use.day:
            self._use = DayUse(today, last=self._use.last)

    def save(self) -> None:
        """Write the use of the day, if it has changed; a full disk is only logged."""
        use = self._use
        if use == self._written:
            return
        day = "" if use.day is None else use.day.isoformat()
        fields = {"day": day, "rounds": use.rounds, "bytes": use.bytes, "last": use.last}
        try:
            write_atomic(self._file, json.dumps(fields).encode())
        except StorageError as error:
            log.warning("the use of the day is not written down: %s", error.message)
        else:
            self._written = use


def _read(file: Path) -> DayUse:
    """Return the use that an earlier process has written; none of a damaged file."""
    if not file.exists():
        return DayUse()
    try:
        kept = json.loads(file.read_text())
        run, number = kept["last"]
        day = date.fromisoformat(kept["day"]) if kept["day"] else None
        return DayUse(day, int(kept["rounds"]), int(kept["bytes"]), (str(run), int(number)))
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("the use of today begins anew: %s cannot be read: %s", file.name, error)
        return DayUse()


def _warn_of_lacking(when: WhenSettings, readings: Readings) -> None:
    for name in lacking(when, readings):
        log.warning("when.%s does not apply: this device has no sensor for it", name)


def lacking(when: WhenSettings, readings: Readings) -> list[str]:
    """Return the names of the limits that do not apply, since the device lacks their sensor."""
    usual = WhenSettings()
    return [
        name
        for name, sensor in _SENSOR_OF.items()
        if getattr(when, name) != getattr(usual, name) and getattr(readings, sensor) is None
    ]
