"""Settings of the times and states of a device in which its owner lets it train."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Annotated, Any

from pydantic import Field, field_validator

from edgefed.config.recipes.sections import Section

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

_WINDOW = re.compile(
    rf"(?:({'|'.join(DAYS)})(?:-({'|'.join(DAYS)}))? )?"
    r"([01]\d|2[0-3]):([0-5]\d)-(?:([01]\d|2[0-3]):([0-5]\d)|(24):(00))"
)

FORM = 'must be like "22:00-06:00", "sat 08:00-20:00" or "mon-fri 18:00-24:00"'

_MIDNIGHT = timedelta(days=1)

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class Window:
    """Hours of some days of the week; those that end on the next day belong to their first day.

    Attributes:
        days: on which it begins, as ``date.weekday`` numbers them.
        start, end: since midnight; the end is at least a minute and at most a day after the start.
    """

    days: frozenset[int]
    start: timedelta
    end: timedelta

    def on(self, day: date) -> tuple[datetime, datetime] | None:
        """Return beginning and end in local time, if it begins on this day."""
        midnight = datetime.combine(day, time())
        inside = day.weekday() in self.days
        return (midnight + self.start, midnight + self.end) if inside else None


def window_of(text: str) -> Window:
    """Return the window that a text such as ``fri-sun 22:00-06:00`` describes.

    Raises:
        ValueError: it describes none.
    """
    match = _WINDOW.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(f"{FORM}, got {text[:40]!r}")
    first, last, *clock = match.groups()
    begin, end = (timedelta(hours=int(h), minutes=int(m)) for h, m in _pairs(clock))
    if begin == end:
        raise ValueError(f"{text[:40]!r} begins when it ends; a whole day is 00:00-24:00")
    count = len(DAYS)
    low = DAYS.index(first) if first else 0
    high = DAYS.index(last or first) if first else count - 1
    days = frozenset((low + step) % count for step in range((high - low) % count + 1))
    return Window(days, begin, end if end > begin else end + _MIDNIGHT)


def _pairs(clock: Sequence[str | None]) -> list[tuple[str, str]]:
    numbers = [number for number in clock if number is not None]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


class WhenSettings(Section):
    """When the device trains and tests. It pauses while one of these limits is passed."""

    hours: Annotated[tuple[str, ...], Field(max_length=64)] = ()
    """Hours in the device's local time, such as ``["22:00-06:00", "sat-sun 08:00-20:00"]``. By
    default, all hours."""

    highest_load: Annotated[float, Field(gt=0, le=100)] | None = None
    """Train only while other programs use at most this percentage of all processor cores. By
    default, the load does not matter."""

    on_mains: bool = False
    """Whether the device trains only while it is not supplied by a battery."""

    least_battery: Annotated[float, Field(ge=0, le=100)] = 0.0
    """Charge of the battery in percent below which the device pauses; it goes on 5 points above."""

    highest_temperature: Annotated[float, Field(gt=0, le=150)] | None = None
    """Temperature of the hottest zone in °C above which the device pauses; it goes on 5 °C below.
    By default, there is no limit."""

    least_memory: Count = 0
    """Bytes of free memory below which the device pauses; it goes on a tenth above."""

    least_disk: Count = 0
    """Free bytes on the disk of the state folder below which it pauses; it goes on a tenth
    above."""

    rounds_a_day: Count | None = None
    """Rounds in which the device trains in a day of its local time. By default, there is no
    limit."""

    bytes_a_day: Count | None = None
    """Payload bytes that the device sends and receives in a day, after which it pauses; the task at
    work then may still send its answer. By default, there is no limit."""

    metered: bool = True
    """Whether the device trains while its network connection is metered, as NetworkManager
    reports."""

    nice: Annotated[int, Field(ge=0, le=19)] = 0
    """How many levels the process that trains is nicer than the agent: with 19, every other program
    goes first."""

    @field_validator("hours", mode="before")
    @classmethod
    def _windows(cls, value: Any) -> Any:
        """Take ``22:00-06:00,sat 08:00-20:00`` too, and check each window."""
        words = value.split(",") if isinstance(value, str) else value
        if isinstance(words, list | tuple):
            for word in words:
                if isinstance(word, str):
                    window_of(word)
            return tuple(word.strip() if isinstance(word, str) else word for word in words)
        return words

    @property
    def windows(self) -> tuple[Window, ...]:
        """The hours; empty for all."""
        return tuple(map(window_of, self.hours))

    @property
    def limited(self) -> bool:
        """Whether there is any limit; the nice level is none."""
        return self.model_copy(update={"nice": 0}) != WhenSettings()
