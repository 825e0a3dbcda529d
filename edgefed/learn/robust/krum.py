"""Krum and Multi-Krum: the updates that are nearest to their neighbours.

Blanchard, El Mhamdi, Guerraoui, Stainer: Machine Learning with Adversaries: Byzantine Tolerant
Gradient Descent, NeurIPS 2017. With n updates, f of them malicious, n >= 2f + 3:

    s(i)  = sum_{i -> j} ||V_i - V_j||^2      over the n - f - 2 updates V_j nearest to V_i
    Krum  = V_{i*},  i* = argmin_i s(i)       the first of equal ones
    Multi-Krum = mean of the m updates with the least s(i); m = n - f in the paper's experiments
"""

from __future__ import annotations

import numpy as np

from edgefed.learn.base.types import Array


def krum_scores(distances: Array, malicious: int) -> Array:
    """Return s(i) of every update.

    Args:
        distances: squared, (updates, updates).
        malicious: f; where there are too few updates for it, the most that they allow.
    """
    count = len(distances)
    # The largest f with n >= 2f + 3, if it is less
    assumed = min(malicious, max(0, (count - 3) // 2))
    neighbours = max(1, count - assumed - 2)
    others = np.sort(_without_diagonal(distances), axis=1)
    scores = np.zeros(count, np.float64)
    for column in others[:, :neighbours].T:
        scores += column
    return scores


def krum_shares(distances: Array, malicious: int, selected: int) -> Array:
    """Return the share of each update in the mean of the ``selected`` best ones."""
    count = len(distances)
    # Stable, so that the first of equal ones comes first
    best = np.argsort(krum_scores(distances, malicious), kind="stable")
    chosen = best[: max(1, min(selected, count))]
    shares = np.zeros(count, np.float64)
    shares[chosen] = 1 / len(chosen)
    return shares


def _without_diagonal(distances: Array) -> Array:
    count = len(distances)
    return np.asarray(distances[~np.eye(count, dtype=bool)].reshape(count, count - 1))
