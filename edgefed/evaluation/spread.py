"""How a score spreads over devices: the worst, the 10th percentile and the median."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

LEVELS = {"worst": 0.0, "p10": 0.1, "median": 0.5}
"""Shares of devices below each level; ``percentile`` interpolates."""


def spread(name: str, values: Iterable[float]) -> dict[str, float]:
    """Return the levels of a score over devices, as ``NAME_worst`` and so on; empty of none.

    Every device counts the same, with any number of samples.
    """
    ordered = sorted(values)
    if not ordered:
        return {}
    return {f"{name}_{level}": percentile(ordered, share) for level, share in LEVELS.items()}


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the value with a share of the others below, interpolated linearly.

    Args:
        ordered: values in ascending order, at least one.
        share: 0 for the least, 0.5 for the median, 1 for the greatest.
    """
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return low + (place - below) * (high - low)
