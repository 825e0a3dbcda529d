"""The geometric median by Weiszfeld's algorithm, on distances alone.

Pillutla, Kakade, Harchaoui: Robust Aggregation for Federated Learning (RFA), IEEE Transactions on
Signal Processing 2022, arXiv 1912.13445, algorithm 2 with equal weights. With n updates x_i:

    gm      = argmin_z sum_i ||x_i - z||
    b_i     = 1 / max(nu, ||x_i - z||)          nu: ``smoothing``
    z      <- sum_i b_i x_i / sum_i b_i          from the mean

Each z is a mixture of the updates with shares p, so that its distances follow from those between
the updates, and no step reads an update:

    ||x_i - z||^2 = sum_j p_j D_ij - 1/2 sum_jk p_j p_k D_jk,   D_ij = ||x_i - x_j||^2

Fewer than half of the devices cannot move gm arbitrarily far.
"""

from __future__ import annotations

import math

import numpy as np

from edgefed.learn.base.types import Array


def weiszfeld_shares(
    distances: Array, smoothing: float, iterations: int, tolerance: float
) -> Array:
    """Return the share of each update in the geometric median.

    Args:
        distances: squared, (updates, updates).
        smoothing: nu.
        iterations: most steps.
        tolerance: the steps end when the sum of distances changes by less than this share of it.
            The sum is flat around its minimum, so the relative error of the median itself is
            larger, up to the square root of the tolerance in order of magnitude.
    """
    count = len(distances)
    shares = np.full(count, 1 / count, np.float64)
    before = math.inf
    for _ in range(iterations):
        lengths = np.sqrt(_squares(distances, shares))
        total = math.fsum(lengths)
        if before - total <= tolerance * total:
            break
        before = total
        pulls = 1 / np.maximum(smoothing, lengths)
        shares = pulls / math.fsum(pulls)
    return shares


def _squares(distances: Array, shares: Array) -> Array:
    """Return the squared distance of every update from the mixture."""
    toward = (distances * shares).sum(axis=1)
    spread = math.fsum(toward * shares) / 2
    # Rounding may leave an update near the mixture a negative square
    return np.asarray(np.maximum(toward - spread, 0.0))
