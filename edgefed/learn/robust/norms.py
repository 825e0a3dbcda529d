"""Norms of updates, the cohort's median norm, and updates scaled down to a largest norm.

Sun, Kairouz, Suresh, McMahan: Can You Really Backdoor Federated Learning?, arXiv 1911.07963,
section 5. With a largest norm C, fixed or a multiple of the median norm of the cohort:

    delta' = delta min(1, C / ||delta||)

The statistics of batch normalisation have a norm and a C of their own: their values are of another
size than those of weights, and would decide alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

import numpy as np

from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.robust.updates import BLOCK, is_statistic

WEIGHTS, RUNNING = "weights", "running statistics"
"""The parts of an update that have norms."""

Norms = Mapping[str, float]


def norms_of(update: Tensors) -> dict[str, float]:
    """Return the norm of each part that an update has; integers count for nothing."""
    squares: dict[str, list[float]] = {}
    for name, array in update.items():
        if array.dtype.kind == "f":
            squares.setdefault(part_of(name), []).append(_square(array))
    return {part: math.sqrt(math.fsum(values)) for part, values in squares.items()}


def median_norms(norms: Sequence[Norms]) -> dict[str, float]:
    """Return the median norm of each part over a cohort; the mean of the middle two for even."""
    parts = sorted({part for norm in norms for part in norm})
    return {part: median(norm[part] for norm in norms if part in norm) for part in parts}


def clipped(update: Tensors, largest: Norms) -> Tensors:
    """Return an update of which no part has a larger norm than given for it."""
    norms = norms_of(update)
    scales = {part: _scale(norms[part], largest.get(part, math.inf)) for part in norms}
    return {
        name: _scaled(array, scales[part_of(name)]) if array.dtype.kind == "f" else array
        for name, array in update.items()
    }


def part_of(name: str) -> str:
    """Return the part of an update that a tensor belongs to."""
    return RUNNING if is_statistic(name) else WEIGHTS


def _scale(norm: float, largest: float) -> float:
    return 1.0 if norm <= largest else largest / norm


def _scaled(array: Array, scale: float) -> Array:
    return array if scale == 1.0 else (array.astype(np.float64) * scale).astype(array.dtype)


def _square(array: Array) -> float:
    """Return the sum of squares, block by block in float64."""
    flat = np.ravel(array)
    blocks = (flat[start : start + BLOCK] for start in range(0, flat.size, BLOCK))
    return math.fsum(float(np.square(block, dtype=np.float64).sum()) for block in blocks)
