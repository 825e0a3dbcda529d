"""Whether a device may train now, from its owner's limits, its readings and the time alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone, tzinfo

from edgefed.config.fleet.when_settings import WhenSettings, Window
from edgefed.terminal.units import counted, size

FIRST_YEAR = 2024
"""A clock of an earlier year is not set: a board without a battery for it starts in 1970."""

COOLER = 5.0
"""Degrees below the limit at which a device that was too hot goes on."""

FULLER = 5.0
"""Points of charge above the limit at which a device whose battery was too low goes on."""

FREER = 1.1
"""How many times the limit of memory or disk must be free before a device goes on."""

QUIETER = 0.8
"""Share of the limit to which the load by other programs must fall before a device goes on."""

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Readings:
    """The state of a device; None for a reading without a sensor.

    Attributes:
        temperature: of the hottest zone or GPU in °C.
        battery: charge in percent.
        mains: whether no battery supplies it.
        memory, disk: free bytes.
        load: of the processors by other programs, in percent.
        metered: whether its network connection is metered.
    """

    temperature: float | None = None
    battery: float | None = None
    mains: bool | None = None
    memory: int | None = None
    disk: int | None = None
    load: float | None = None
    metered: bool | None = None


@dataclass(frozen=True)
class DayUse:
    """The rounds and bytes of a device in a day.

    Attributes:
        day: in local time; None before the clock is set.
        rounds: in which it trained.
        bytes: payload that it sent and received.
        last: run and number of the last round.
    """

    day: date | None = None
    rounds: int = 0
    bytes: int = 0
    last: tuple[str, int] = ("", 0)


@dataclass(frozen=True)
class Pause:
    """A device does not train now.

    Attributes:
        limits: names of the settings whose limits are passed.
        reason: in words.
        until: earliest moment at which it may go on, in UTC; None if that depends on a sensor.
    """

    limits: frozenset[str]
    reason: str
    until: datetime | None = None

    def seconds_left(self, now: datetime) -> float | None:
        """Return the seconds until it may go on, at least 0; None if they are not known."""
        return None if self.until is None else max(0.0, (self.until - now).total_seconds())


_Passed = tuple[str, str, datetime | None]
"""Name of a limit, the reason in words, and the earliest moment at which it may not be passed."""


def decide(
    when: WhenSettings,
    readings: Readings,
    use: DayUse,
    now: datetime,
    zone: tzinfo | None = None,
    before: Pause | None = None,
) -> Pause | None:
    """Return why a device may not train now; None if it may.

    Args:
        when: its owner's limits; one without a reading does not apply.
        readings: of its sensors.
        use: of its day.
        now: with its time zone.
        zone: the device's time zone; None for that of this machine.
        before: the last decision: limits that were passed then are passed until there is some
            margin, so that a reading near its limit does not pause and resume all the time.
    """
    local = now.astimezone(zone)
    passed = [
        *_of_hours(when.windows, local, zone),
        *_of_board(when, readings, frozenset() if before is None else before.limits),
        *_of_use(when, use, local, zone),
    ]
    if not passed:
        return None
    names, reasons, ends = zip(*passed, strict=True)
    until = max((end for end in ends if end is not None), default=None)
    return Pause(frozenset(names), "; ".join(reasons), until)


def _moment(naive: datetime, local: datetime, zone: tzinfo | None) -> datetime:
    """Return a local time in UTC; of one that a change of the clocks repeats, the one ahead."""
    return naive.replace(tzinfo=zone, fold=local.fold).astimezone(timezone.utc)


def _of_hours(
    windows: Collection[Window], local: datetime, zone: tzinfo | None
) -> Iterator[_Passed]:
    if not windows:
        return
    if local.year < FIRST_YEAR:
        yield "hours", "its clock is not set", None
        return
    naive = local.replace(tzinfo=None, fold=0)
    days = [local.date() + step * _DAY for step in range(-1, 8)]
    spans = [span for window in windows for day in days if (span := window.on(day))]
    if not any(start <= naive < end for start, end in spans):
        start = min(start for start, _ in spans if start > naive)
        yield "hours", "outside its hours", _moment(start, local, zone)


def _of_board(when: WhenSettings, readings: Readings, before: Collection[str]) -> Iterator[_Passed]:
    if when.on_mains and readings.mains is False:
        yield "on_mains", "its battery supplies it", None
    if not when.metered and readings.metered:
        yield "metered", "its network connection is metered", None
    heat, most, load = readings.temperature, when.highest_temperature, readings.load
    if heat is not None and most is not None:
        cool = most - COOLER
        if heat > (cool if "highest_temperature" in before else most):
            yield "highest_temperature", f"{heat:.0f} °C (goes on at {cool:.0f} °C)", None
    if load is not None and when.highest_load is not None:
        quiet = when.highest_load * QUIETER
        if load > (quiet if "highest_load" in before else when.highest_load):
            text = f"other programs use {load:.0f} % of the processors"
            yield "highest_load", f"{text} (goes on at {quiet:.0f} %)", None
    charge, least = readings.battery, when.least_battery
    if charge is not None and least:
        full = min(100.0, least + FULLER)
        if charge < (full if "least_battery" in before else least):
            yield "least_battery", f"battery {charge:.0f} % (goes on at {full:.0f} %)", None
    yield from _of_space("least_memory", "memory", readings.memory, when.least_memory, before)
    yield from _of_space("least_disk", "disk", readings.disk, when.least_disk, before)


def _of_space(
    name: str, of: str, free: int | None, least: int, before: Collection[str]
) -> Iterable[_Passed]:
    wanted = least * FREER
    if free is None or free >= (wanted if name in before else least):
        return []
    return [(name, f"{size(free)} of {of} free (goes on at {size(wanted)})", None)]


def _of_use(
    when: WhenSettings, use: DayUse, local: datetime, zone: tzinfo | None
) -> Iterator[_Passed]:
    if use.day != local.date():
        return
    tomorrow = _moment(datetime.combine(local.date() + _DAY, time()), local, zone)
    if when.rounds_a_day is not None and use.rounds >= when.rounds_a_day:
        yield "rounds_a_day", f"it trained in {counted(use.rounds, 'round')} today", tomorrow
    if when.bytes_a_day is not None and use.bytes >= when.bytes_a_day:
        yield "bytes_a_day", f"it sent and received {size(use.bytes)} today", tomorrow
