"""Matching one layer of 16 devices: seconds, atoms and objective, beside a row by row loop.

``planted``: 16 devices hold permuted copies of the same 512 atoms, which are N(0, 1) in 1000
numbers, with noise of deviation 0.3. ``random``: their weights are N(0, 1) and have nothing in
common. Each is matched with the variances and caps of the published implementation (``reference``)
and with the defaults (``auto``), in five sweeps at most, with two threads.

Seconds are the least of the repeats. The shares of computing rewards and of solving assignments are
those of one more run under a profiler. The objective is its data term, as published figures have
it. A smaller layer is also matched by ``benchmarks/peers/matching_rows.py``, which does what the
published implementation does; the ratio is of medians of alternating runs.

    python -m benchmarks.matching [--repeats 5] [--units 512] [--numbers 1000] [--json]
"""

from __future__ import annotations

import cProfile
import os
import pstats
import statistics
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.peers.matching_rows import RowMatching
from benchmarks.shared.harness import parser, show, told
from edgefed.learn.base.types import Array
from edgefed.learn.matching.layer import Matched, match_layer
from edgefed.learn.matching.problem import prior_term
from edgefed.learn.matching.settings import MatchSettings

DEVICES, THREADS = 16, "2"
SMALL = (64, 100)
"""Units and numbers of the layer that the row by row loop matches too."""

SETTINGS = {"reference": MatchSettings.reference(), "auto": MatchSettings()}


def planted(units: int, numbers: int) -> list[Array]:
    """Return the devices' noisy, permuted copies of the same atoms."""
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((units, numbers))
    return [
        atoms[rng.permutation(units)] + 0.3 * rng.standard_normal((units, numbers))
        for _ in range(DEVICES)
    ]


def unrelated(units: int, numbers: int) -> list[Array]:
    """Return devices with nothing in common."""
    rng = np.random.default_rng(0)
    return [rng.standard_normal((units, numbers)) for _ in range(DEVICES)]


PROBLEMS = {"planted": planted, "random": unrelated}


def match(weights: Sequence[Array], settings: MatchSettings) -> tuple[float, Matched]:
    """Return the seconds of a matching, and the matching."""
    began = time.perf_counter()
    found = match_layer(weights, settings=settings, rng=np.random.default_rng(1))
    return time.perf_counter() - began, found


def measure(problem: str, settings: str, units: int, numbers: int, repeats: int) -> dict[str, Any]:
    """Return a row."""
    weights, how = PROBLEMS[problem](units, numbers), SETTINGS[settings]
    runs = [match(weights, how) for _ in range(repeats)]
    found = runs[0][1]
    return {
        "problem": problem,
        "settings": settings,
        "seconds": min(seconds for seconds, _ in runs),
        "median_seconds": statistics.median(seconds for seconds, _ in runs),
        "atoms": len(found.atoms),
        "objective": found.objective - prior_term(found.counts, DEVICES, how.gamma),
        "sweeps": found.sweeps,
        **shares(weights, how),
    }


def shares(weights: Sequence[Array], settings: MatchSettings) -> dict[str, float]:
    """Return which part of the time rewards and assignments take."""
    profile = cProfile.Profile()
    profile.runcall(match, weights, settings)
    stats = pstats.Stats(profile)
    taken = {name: row[3] for (_, _, name), row in stats.stats.items()}  # type: ignore[attr-defined]
    return {
        "share_cost": taken["rewards"] / taken["match"],
        "share_assignment": taken["best_assignment"] / taken["match"],
    }


def beside_rows(repeats: int) -> dict[str, float]:
    """Return how a small planted layer is matched here and row by row."""
    weights, seconds, rows = planted(*SMALL), list[float](), list[float]()
    value, peers = 0.0, 0.0
    match(weights, SETTINGS["reference"])
    for _ in range(repeats):
        own, found = match(weights, SETTINGS["reference"])
        seconds.append(own)
        began = time.perf_counter()
        peers = RowMatching(weights).run(1)
        rows.append(time.perf_counter() - began)
        value = found.objective - prior_term(found.counts, DEVICES, SETTINGS["reference"].gamma)
    return {
        "seconds": statistics.median(seconds),
        "rows_seconds": statistics.median(rows),
        "ratio": statistics.median(rows) / statistics.median(seconds),
        "objective": value,
        "rows_objective": peers,
    }


def main() -> None:
    """Measure and print."""
    options = parser("matching", __doc__, repeats=5, units=512, numbers=1000).parse_args()
    if os.environ.get("OPENBLAS_NUM_THREADS") != THREADS:
        # The library reads it when numpy is imported.
        again = [sys.executable, "-m", "benchmarks.matching", *sys.argv[1:]]
        os.execve(sys.executable, again, {**os.environ, "OPENBLAS_NUM_THREADS": THREADS})
    units, numbers = options.units, options.numbers
    rows = [
        measure(problem, settings, units, numbers, options.repeats)
        for problem in PROBLEMS
        for settings in SETTINGS
    ]
    beside = beside_rows(options.repeats)
    size = f"{DEVICES}_{units}_{numbers}"
    figures = {
        f"{figure}_{size}{suffix}": row[figure]
        for row, suffix in zip(rows, ("", "_auto", "_random", "_random_auto"), strict=True)
        for figure in ("seconds", "objective", "atoms")
    }
    measured = {"rows": rows, "row_by_row": beside}
    show(options, {**figures, **measured}, told(measured))


if __name__ == "__main__":
    main()
