"""Virtual time: how long each virtual device takes, and a clock that jumps from event to event.

A task that trains on n samples, each counted once an epoch, downloads b and uploads u bytes, takes

    b / downlink + n seconds_per_sample + u / uplink        seconds in which its device is present

Speeds are log-normal around the recipe's medians; absences alternate with presences, both of
exponential length. Every draw derives from the run's seed and the device's number.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

from edgefed.config.recipes.speeds_section import SpeedsSection
from edgefed.errors import DataError
from edgefed.seeds import generator


class VirtualClock:
    """A clock that stands still until it is moved.

    Args:
        began: the wall-clock time at second 0.
    """

    def __init__(self, began: datetime) -> None:
        self._began = began
        self._seconds = 0.0

    def monotonic(self) -> float:
        """Return the virtual seconds."""
        return self._seconds

    def now(self) -> datetime:
        """Return the time at which it began, plus the virtual seconds."""
        return self._began + timedelta(seconds=self._seconds)

    def advance(self, until: float) -> None:
        """Move to a later second; an earlier one changes nothing."""
        self._seconds = max(self._seconds, until)


@dataclass(frozen=True)
class Speed:
    """The speed of a device.

    Attributes:
        seconds_per_sample: to train on one sample once.
        uplink, downlink: bytes per second; 0 for no limit.
    """

    seconds_per_sample: float
    uplink: float = 0.0
    downlink: float = 0.0

    def seconds(self, samples: float, down: int, up: int) -> float:
        """Return the seconds of a task that trains on so many samples and moves so many bytes."""
        moved = (down / self.downlink if self.downlink else 0.0) + (
            up / self.uplink if self.uplink else 0.0
        )
        return moved + samples * self.seconds_per_sample


class VirtualTime:
    """The clock of a simulation, and the speeds and absences of its devices.

    Args:
        section: the recipe's ``[speeds]`` table.
        names: ids of the devices, in the order of their numbers.
        seed: of the run.
        began: the wall-clock time at second 0.

    Raises:
        DataError: ``speeds.file``: the file cannot be read, or is of other devices.
    """

    def __init__(
        self, section: SpeedsSection, names: tuple[str, ...], seed: int, began: datetime
    ) -> None:
        self.clock = VirtualClock(began)
        self._section = section
        measured = _measured(section.file)
        if measured and measured.keys().isdisjoint(names):
            raise DataError(
                f"The speeds in {section.file} are of other devices, such as {min(measured)}.",
                code="speeds.file",
                hint=f"the simulation has devices such as {names[0]}; rename those in the file",
            )
        self._speeds = {
            name: replace(_drawn(section, seed, number), **measured.get(name, {}))
            for number, name in enumerate(names)
        }
        self._absences = {
            name: _Absences(section, generator(seed, "simulation", "absences", number))
            for number, name in enumerate(names if section.absent else ())
        }

    @property
    def may_change(self) -> bool:
        """Whether devices come and go."""
        return bool(self._absences)

    def is_present(self, device: str) -> bool:
        """Whether a device is there now."""
        return self.back_at(device) <= self.clock.monotonic()

    def back_at(self, device: str) -> float:
        """Return when a device is there: now, or at the end of its absence."""
        now = self.clock.monotonic()
        absences = self._absences.get(device)
        return now if absences is None else absences.present_from(now)

    def speed(self, device: str) -> Speed:
        """Return the speed of a device."""
        return self._speeds[device]

    def finish(self, device: str, begun: float, samples: float, down: int, up: int) -> float:
        """Return the second at which a device has done a task that it began."""
        seconds = self._speeds[device].seconds(samples, down, up)
        absences = self._absences.get(device)
        return begun + seconds if absences is None else absences.after_work(begun, seconds)


class _Absences:
    """The absences of one device, drawn as far as they are needed."""

    def __init__(self, section: SpeedsSection, draws: np.random.Generator) -> None:
        self._draws = draws
        self._absence = section.absence
        # From absence / (absence + presence) = absent, with both as mean lengths in seconds
        self._presence = section.absence * (1 - section.absent) / section.absent
        self._spans: list[tuple[float, float]] = []  # from, to
        self._end = 0.0

    def _until(self, moment: float) -> list[tuple[float, float]]:
        # In turns from one generator: how far they are drawn does not change the earlier ones
        while self._end <= moment:
            begin = self._end + float(self._draws.exponential(self._presence))
            self._end = begin + float(self._draws.exponential(self._absence))
            self._spans.append((begin, self._end))
        return self._spans

    def present_from(self, moment: float) -> float:
        """Return the first second from ``moment`` on at which the device is there."""
        for begin, end in self._until(moment):
            if begin <= moment < end:
                return end
        return moment

    def after_work(self, begun: float, seconds: float) -> float:
        """Return when so many seconds of presence have passed."""
        at = self.present_from(begun)
        while True:
            following = next(begin for begin, _ in self._with_next(at) if begin >= at)
            if at + seconds <= following:
                return at + seconds
            seconds -= following - at
            at = self.present_from(following)

    def _with_next(self, moment: float) -> list[tuple[float, float]]:
        """Return the absences, with one at least that begins after ``moment``."""
        spans = self._until(moment)
        while spans[-1][0] < moment:
            spans = self._until(self._end)
        return spans


def _drawn(section: SpeedsSection, seed: int, number: int) -> Speed:
    """Return a device's speed, drawn around the medians."""
    draws = generator(seed, "simulation", "speed", number).standard_normal(3)
    slower, up, down = np.exp(section.spread * draws)
    return Speed(
        section.seconds_per_sample * float(slower),
        section.uplink * float(up),
        section.downlink * float(down),
    )


def _measured(file: str) -> dict[str, dict[str, float]]:
    """Return the known values in a CSV file, by device and column; none without a file."""
    if not file:
        return {}
    try:
        with Path(file).open(newline="", encoding="utf-8") as lines:
            table = csv.DictReader(lines)
            rows, columns = list(table), table.fieldnames or ()
        if missing := [name for name in ("device", "seconds_per_sample") if name not in columns]:
            raise ValueError(f"it has no column {missing[0]}")
        if not rows:
            raise ValueError("it has no row")
        return {row["device"]: _values(row) for row in rows}
    except (OSError, ValueError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise DataError(
            f"The speeds in {file} cannot be read: {why}.",
            code="speeds.file",
            hint="name a CSV file with the columns device and seconds_per_sample",
        ) from error


def _values(row: dict[str, str]) -> dict[str, float]:
    """Return the cells of a device that are not empty."""
    cells = {"seconds_per_sample": row["seconds_per_sample"]}
    cells |= {name: row[name] for name in ("uplink", "downlink") if name in row}
    values = {}
    for name, cell in cells.items():
        if not (cell and cell.strip()):
            continue
        try:
            values[name] = float(cell)
        except ValueError:
            values[name] = math.nan
        if not 0 <= values[name] < math.inf:
            raise ValueError(f"{name} of {row['device']} is {cell}")
    return values
