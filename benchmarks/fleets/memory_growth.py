"""Whether a program's memory grows, from samples of it during runs that follow each other.

Memory rises within a run and falls with its end, and the allocator returns freed pages late. The
least of each run leaves out both. Growth is the slope of these over the rounds of the second half,
with an interval of 95 %. Neighbouring runs resemble each other, so the interval counts fewer of
them than there are: n (1 - r) / (1 + r), where r is the correlation of one run with the next.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

TOLERANCE = 256.0
"""Bytes a round. Memory counts as flat where a larger growth is excluded."""

LEAST_RUNS = 8
"""Runs in the second half without which nothing is said about growth."""

Verdict = Literal["flat", "grows", "undecided"]


def growth(
    times: Sequence[float], samples: Sequence[float], ends: Sequence[tuple[float, int]]
) -> dict[str, Any]:
    """Return the figures of one program.

    Args:
        times: seconds of the samples.
        samples: resident memory in MB.
        ends: second at which each run ended, and the rounds of all runs until then.
    """
    points = least_of_runs(times, samples, ends)
    third = max(1, len(points) // 3)
    least = [megabytes for _, megabytes in points]
    thirds = [
        statistics.median(each) for each in (least[:third], least[third:-third], least[-third:])
    ]
    slope, interval = slope_of(points[len(points) // 2 :])
    rounds_an_hour = 3600 * ends[-1][1] / ends[-1][0]
    return {
        "thirds_mb": thirds,
        "most_mb": max(samples),
        "ratio": thirds[2] / thirds[1],
        "bytes_a_round": 1e6 * slope,
        "interval": 1e6 * interval,
        "mb_an_hour": slope * rounds_an_hour,
        "verdict": verdict(1e6 * slope, 1e6 * interval),
    }


def least_of_runs(
    times: Sequence[float], samples: Sequence[float], ends: Sequence[tuple[float, int]]
) -> list[tuple[int, float]]:
    """Return the rounds until the end of each run, and the least memory during it."""
    points = []
    for (began, _), (ended, rounds) in pairwise([(0.0, 0), *ends]):
        within = [mb for when, mb in zip(times, samples, strict=True) if began < when <= ended]
        if within:
            points.append((rounds, min(within)))
    return points


def slope_of(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the slope of a line through points, and half its 95 % interval; infinite for few."""
    if len(points) < LEAST_RUNS:
        return math.nan, math.inf
    xs, ys = zip(*points, strict=True)
    slope, start = statistics.linear_regression(xs, ys)
    rest = [y - start - slope * x for x, y in points]
    squares = sum(each * each for each in rest)
    if not squares:
        return slope, 0.0
    alike = max(0.0, sum(one * other for one, other in pairwise(rest)) / squares)
    freedom = max(1.0, len(points) * (1 - alike) / (1 + alike) - 2)
    spread = math.sqrt(squares / freedom / sum((x - statistics.fmean(xs)) ** 2 for x in xs))
    return slope, t_quantile(freedom) * spread


def t_quantile(freedom: float) -> float:
    """Return the 97.5 % quantile of Student's distribution (Cornish and Fisher 1938)."""
    z = statistics.NormalDist().inv_cdf(0.975)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3


def verdict(slope: float, interval: float) -> Verdict:
    """Return what a growth and half its interval, in bytes a round, show."""
    if slope + interval < TOLERANCE:
        return "flat"
    return "grows" if slope - interval > 0 else "undecided"
