"""Round the numbers of an algorithm's report for events, which are stored as JSON."""

from __future__ import annotations

import math

DIGITS = 4
"""Decimal places of a number in an event."""


def rounded(value: float) -> float:
    """Return a number rounded; one that is not finite is shown as 0."""
    return round(float(value), DIGITS) if math.isfinite(value) else 0.0


def measured(value: float | None) -> float | None:
    """Return a measured number rounded; None for one that is not finite or was not measured."""
    return None if value is None or not math.isfinite(value) else round(float(value), DIGITS)
