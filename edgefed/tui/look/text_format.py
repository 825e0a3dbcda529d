"""Text elements that several panes share: times, ages, bars, sparklines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import pairwise

from edgefed.terminal.printable import printable
from edgefed.terminal.units import clock_time, coarse

MEBIBYTE = 1024 * 1024
_SPARKS = "▁▂▃▄▅▆▇█"


def clean(text: str) -> str:
    """Return text from a device without characters that could move the cursor or break a row."""
    return printable(text, "?")


def cut(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters, the end replaced by … when it is longer."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"[:width]


def cut_middle(text: str, width: int) -> str:
    """Return ``text`` in at most ``width`` characters, its middle replaced by … when it is longer.

    Ids of one fleet often differ only in their ends.
    """
    if len(text) <= width:
        return text
    if width < 3:
        return cut(text, width)
    end = width // 2
    return f"{text[: width - 1 - end]}…{text[-end:]}"


@lru_cache(maxsize=4096)
def moment(stamp: str) -> datetime | None:
    """Return an ISO 8601 time, or None when there is none; without a zone it is UTC."""
    try:
        parsed = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    except ValueError:
        return None
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=timezone.utc)


def wall_time(when: datetime | None, zone: tzinfo | None, *, seconds: bool = True) -> str:
    """Return a time of day in ``zone`` (None is this machine's), or an empty text without one."""
    if when is None:
        return ""
    return when.astimezone(zone).strftime("%H:%M:%S" if seconds else "%H:%M")


def countdown(left: timedelta) -> str:
    """Return a duration as ``00:38``, with hours only when there are some."""
    shown = clock_time(left.total_seconds())
    return shown[3:] if shown.startswith("00:") else shown


def age(seconds: float) -> str:
    """Return how long ago something was, in at most six characters, such as ``45 s``."""
    whole = coarse(seconds)
    for size, unit in ((100, "s"), (100, "min"), (48, "h")):
        if whole < size:
            return f"{whole} {unit}"
        whole //= 60 if unit != "h" else 24
    return f"{whole} d"


def bar(fraction: float, width: int) -> tuple[str, str]:
    """Return the filled and the empty part of a bar; it is full only when the work is done."""
    filled = int(max(0.0, min(1.0, fraction)) * width)
    return "█" * filled, "░" * (width - filled)


def sparks(values: Sequence[float]) -> str:
    """Return one block character for each value, scaled to the largest; zero and below is ``·``."""
    top = max(values, default=0.0)
    return "".join(_spark(value, top) for value in values)


def _spark(value: float, top: float) -> str:
    if value <= 0 or not math.isfinite(value):
        return "·"
    return _SPARKS[max(1, math.ceil(value / top * len(_SPARKS))) - 1]


def trend(values: Sequence[float | None]) -> str:
    """Return one block character for each value, from the least to the largest; none is a gap."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scale = (len(_SPARKS) - 1) / (high - low) if high > low else 0.0
    return "".join(
        " " if value is None else _SPARKS[round((value - low) * scale)] for value in values
    )


def binned(values: Sequence[float], count: int) -> list[float]:
    """Return ``values`` summed into at most ``count`` neighbouring groups of nearly equal size."""
    if len(values) <= count:
        return list(values)
    edges = [index * len(values) // count for index in range(count + 1)]
    return [sum(values[low:high]) for low, high in pairwise(edges)]
