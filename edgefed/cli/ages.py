"""Format timestamps as ages: how long ago."""

from __future__ import annotations

from edgefed.clock import SystemClock, moment_of, timestamp
from edgefed.units import age


def ago(stamp: str, now: str = "") -> str:
    """Return how long ago a timestamp was, such as ``3 min ago``; nothing for none.

    Args:
        stamp: ISO 8601, as the coordinator writes it.
        now: the same, by the same machine's clock; the time of this machine when left out.
    """
    if not stamp:
        return ""
    until = moment_of(now or timestamp(SystemClock().now()))
    return age((until - moment_of(stamp)).total_seconds())
