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


_UNITS = (
    (100 * 60, 60, "min", 1, "s"),
    (48 * 3600, 3600, "h", 60, "min"),
    (math.inf, 86400, "d", 3600, "h"),
)
"""Seconds up to which a duration is in a unit; that unit in seconds and its name; the next one."""


def duration(seconds: float, parts: int = 2) -> str:
    """Return a duration, such as ``350 ms``, ``4.2 s``, ``48 s``, ``2 min 05 s`` or ``3 h 12 min``.

    Args:
        seconds: of the duration.
        parts: 1 for the first unit alone, where there is no room for two.
    """
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds > 0 else "0 s"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    if whole < 100:
        return f"{whole} s"
    _, size_of_unit, unit, size_of_next, next_unit = next(row for row in _UNITS if whole < row[0])
    count, rest = divmod(whole, size_of_unit)
    rest //= size_of_next
    return f"{count} {unit}" + (f" {rest:02d} {next_unit}" if rest and parts > 1 else "")


def time_left(seconds: float) -> str:
    """Return the duration of a wait in whole seconds; never ``0 s``."""
    return duration(max(1, math.ceil(seconds)))


def coarse(seconds: float) -> int:
    """Return an age in whole seconds, which grows in steps of 1, from 10 on of 5, from 60 on of 10.

    Screens show ages in these steps, so that one that stands still seldom has to be drawn anew.
    """
    whole = max(0, int(seconds))
    return whole - whole % (1 if whole < 10 else 5 if whole < 60 else 10)


def age(seconds: float) -> str:
    """Return the age of an event in at most six characters, such as ``48 s`` or ``12 min``."""
    return duration(coarse(seconds), 1)


def ago(seconds: float) -> str:
    """Return when an event was, such as ``3 min ago``; clocks may differ a little."""
    return f"{age(seconds)} ago" if seconds >= 1 else "now"


def used_of(used: float, total: float | None) -> str:
    """Return bytes in use of all, such as ``3.1 of 7.6 GiB``, or alone where all are unknown."""
    if not total:
        return size(used)
    number, unit = size(total).split()
    most = float(number)
    shown = (f"{value:.{int(value < 100)}f}" for value in (most * used / total, most))
    return f"{' of '.join(shown)} {unit}"


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
