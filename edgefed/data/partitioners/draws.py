"""Redraw proportions until every device has enough samples, up to a limit of attempts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import too_few
from edgefed.errors import DataError

DRAWS = 1000
"""Most draws before giving up on ``min_samples``."""

EFFORT = 15_000_000
"""Most proportions to draw in total, in about a second, so that an impossible request ends soon."""

ROW = 200
"""How many proportions cost as much as a row of them does by itself."""


def draws(rows: int, devices: int) -> int:
    """Return how often to draw ``rows`` of proportions: `DRAWS` times, or fewer for many rows.

    It depends on the request alone, so that the same recipe succeeds on every machine.
    """
    return max(1, min(DRAWS, EFFORT // (rows * (devices + ROW))))


def check_minimum(samples: int, devices: int, min_samples: int) -> None:
    """Raise a `DataError` where no division at all can give every device ``min_samples``."""
    if devices * min_samples > samples:
        raise too_few(
            f"{samples} samples cannot give {devices} devices {min_samples} each.",
            hint="lower min_samples, or use fewer devices",
        )


def given_up(times: int, alpha: float, devices: int, min_samples: int) -> DataError:
    """Return the error for a minimum that no draw has met."""
    return too_few(
        f"In each of {times} draws with alpha = {alpha:g}, some of {devices} devices"
        f" had fewer than {min_samples} samples.",
        hint="raise alpha, lower min_samples, or use fewer devices",
    )


def cuts(proportions: npt.NDArray[np.float64], samples: int) -> Indices | None:
    """Return the cuts of ``samples`` in these proportions, or None for empty proportions.

    A proportion that is not a number, as a tiny concentration may give, counts as 0.
    """
    cumulative = np.cumsum(proportions)
    if not cumulative[-1] > 0:
        return None
    # Divided by the last sum, so that it ends at exactly 1 and the devices after the last
    # one with a positive proportion get nothing.
    ends: Indices = np.floor(cumulative / cumulative[-1] * samples).astype(np.int64)
    return ends[:-1]
