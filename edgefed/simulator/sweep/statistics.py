"""Statistics over seeds: means, deviations, 95 % intervals, and differences paired by seed.

The interval of a mean over n seeds is mean ± t s / √n, with s the sample standard deviation and t
the two-sided quantile of Student's t-distribution with n − 1 degrees of freedom. Two cases that ran
with the same seeds share their data, partition and initial weights, so their difference is taken
for each seed, and the interval is that of the differences: common effects of the seed cancel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

Better = Literal["higher", "lower"]

Verdict = Literal["better", "worse", "higher", "lower", "within the noise", "unknown"]


@dataclass(frozen=True)
class Spread:
    """Values over seeds.

    Attributes:
        mean: None of no value.
        deviation: sample standard deviation (n − 1); None of fewer than two values.
        count: how many values.
        margin: half the width of the 95 % interval of the mean; None of fewer than two values.
    """

    mean: float | None
    deviation: float | None
    count: int
    margin: float | None = None


def spread(values: Sequence[float]) -> Spread:
    """Return mean, deviation and interval of values."""
    if not values:
        return Spread(None, None, 0)
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Spread(mean, None, 1)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return Spread(mean, deviation, count, t_quantile(count - 1) * deviation / math.sqrt(count))


@cache
def t_quantile(freedom: int) -> float:
    """Return Student's t for 95 %, two-sided, of so many degrees of freedom."""
    # scipy takes a fifth of a second to import, and most programs need no quantile.
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.975))


def paired(values: Mapping[int, float], reference: Mapping[int, float]) -> Spread:
    """Return the differences of values to those of a reference, over the seeds of both.

    Args:
        values: by seed.
        reference: by seed.
    """
    return spread([values[seed] - reference[seed] for seed in values if seed in reference])


def verdict(difference: Spread, better: Better | None) -> Verdict:
    """Return whether a difference is beyond its interval, and in which direction.

    Args:
        difference: of a case to the reference.
        better: the better values; None for a number of which neither is.
    """
    if difference.mean is None or difference.margin is None:
        return "unknown"
    if abs(difference.mean) <= difference.margin:
        return "within the noise"
    side: Better = "higher" if difference.mean > 0 else "lower"
    if better is None:
        return side
    return "better" if side == better else "worse"
