"""Format numbers for people: bytes, durations, scores."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def size(count: float) -> str:
    """Return a number of bytes in binary units, such as ``1.2 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def counted(count: int, one: str, many: str = "") -> str:
    """Return a number of things with its noun, such as ``1 reply`` or ``3 replies``.

    Args:
        count: number of things.
        one: the noun for one of them.
        many: the noun for several; empty for ``one`` with an s.
    """
    return f"{count} {one if count == 1 else many or one + 's'}"


def clock_time(seconds: float) -> str:
    """Return a duration as ``00:41:20``."""
    whole = max(0, int(seconds))
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def time_left(seconds: float) -> str:
    """Return the duration of a wait, such as ``48 s`` or ``00:41:20``; never ``0 s``."""
    return f"{max(1, math.ceil(seconds))} s" if seconds < 60 else clock_time(seconds)


def short_time(seconds: float) -> str:
    """Return a duration in one unit, such as ``48 s``, ``12 min`` or ``3 h``."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def coarse(seconds: float) -> int:
    """Return an age in whole seconds, which grows in steps of 1, from 10 on of 5, from 60 on of 10.

    Screens show ages in these steps, so that one that stands still seldom has to be drawn anew.
    """
    whole = max(0, int(seconds))
    return whole - whole % (1 if whole < 10 else 5 if whole < 60 else 10)


def age(seconds: float) -> str:
    """Return the age of an event, such as ``3 min ago``; clocks may differ a little."""
    if seconds < 1:
        return "now"
    if seconds < 48 * 3600:
        return f"{short_time(coarse(seconds))} ago"
    return f"{seconds / 86400:.0f} d ago"


def score(accuracy: float | None, loss: float | None, *, shown: str = ".3f") -> str:
    """Return the result of a test, such as ``accuracy 0.912``; empty without a test.

    The loss is named only where there is no accuracy. ``shown`` is the accuracy's format.
    """
    if accuracy is not None:
        return f"accuracy {accuracy:{shown}}"
    return "" if loss is None else f"loss {loss:.4g}"


def tested_by(result: Mapping[str, Any]) -> str:
    """Return who tested and which labels, such as ``1 of 4 devices · 3 of 10 labels``.

    Args:
        result: a round or a run, with the numbers of ``snapshot.TEST_COUNTS``; may lack them.
    """
    parts = [
        f"{result[tested]} of {result[every]} {name}"
        for tested, every, name in (
            ("tested_devices", "all_testers", "devices"),
            ("tested_labels", "all_labels", "labels"),
        )
        if result.get(every)
    ]
    return " · ".join(parts)


def score_of(result: Mapping[str, Any], *, shown: str = ".3f") -> str:
    """Return the result of a test with who tested; empty without a test."""
    scores = score(result.get("accuracy"), result.get("loss"), shown=shown)
    return " · ".join(filter(None, (scores, tested_by(result)))) if scores else ""


def seconds_of(text: str) -> float:
    """Return the seconds in a duration such as ``90s``, ``15m``, ``2h`` or ``1d``.

    Raises:
        ValueError: it is not a duration.
    """
    factor = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}.get(text[-1:])
    if factor is None or not text[:-1].replace(".", "", 1).isdecimal():
        raise ValueError(f"'{text[:40]}' is not a duration such as 15m")
    return float(text[:-1]) * factor
