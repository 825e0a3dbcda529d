"""The source of time, which tests can replace.

Durations are measured with ``monotonic``; ``now`` is only displayed or recorded, because a board
without a battery clock may start in 1970.
"""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        ...

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        ...


class Periodic(Protocol):
    """A part of a message loop that has work from time to time.

    The loop calls ``due`` once ``next_due`` has passed.

    Attributes:
        next_due: the monotonic second from which on ``due`` has work.
    """

    next_due: float

    def due(self, now: float) -> object:
        """Do the work that is due at this monotonic second."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()

    def now(self) -> datetime:
        """Return the wall-clock time in UTC."""
        return datetime.now(timezone.utc)


def timestamp(moment: datetime) -> str:
    """Return ``moment`` as ISO 8601 in UTC with milliseconds, as files and ``--json`` show it."""
    if moment.tzinfo is not timezone.utc:
        moment = moment.astimezone(timezone.utc)
    return moment.isoformat(timespec="milliseconds")[:-6] + "Z"


def moment_of(stamp: str) -> datetime:
    """Return the moment of a ``timestamp``.

    Raises:
        ValueError: it is not a timestamp.
    """
    return datetime.fromisoformat(stamp.replace("Z", "+00:00"))
