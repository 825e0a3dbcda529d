"""Dirichlet label skew with equal sizes: each device draws its own proportions of labels.

For each device q ~ Dir(α p), where p are the labels' shares in the data. Its samples are drawn with
proportions q from the remaining samples. Hsu, Qi, Brown: Measuring the Effects of
Non-Identical Data Distribution for Federated Visual Classification (2019).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts


def dirichlet_equal(
    labels: Indices,
    devices: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    per_component: bool = False,
) -> Parts:
    """Return ``devices`` parts whose sizes differ by at most one.

    Args:
        labels: (n,) integers.
        devices: number of parts, at most n.
        alpha: concentration, times each label's share; the same number is more skewed here than
            in `edgefed.data.partitioners.dirichlet`, by a factor of the number of labels.
        rng: draws proportions and samples.
        per_component: q ~ Dir(α, …, α) instead, over the labels that samples bear.
    """
    present, counts = np.unique(labels, return_counts=True)
    pools = [rng.permutation(np.flatnonzero(labels == label)) for label in present]
    left = counts.copy()
    concentration = equal_concentration(labels, alpha, per_component)
    parts = []
    for device in range(devices):
        size = len(labels) // devices + (device < len(labels) % devices)
        shares = rng.dirichlet(concentration)
        chosen = _draw_counts(shares, left, size, rng)
        pieces = [
            pool[rest - count : rest] for pool, rest, count in zip(pools, left, chosen, strict=True)
        ]
        parts.append(rng.permutation(np.concatenate(pieces)))
        left -= chosen
    return tuple(parts)


def equal_concentration(
    labels: Indices, alpha: float, per_component: bool
) -> npt.NDArray[np.float64]:
    """Return the concentration of each label that samples bear, ascending."""
    counts = np.unique(labels, return_counts=True)[1]
    if per_component:
        return np.full(len(counts), alpha)
    concentration: npt.NDArray[np.float64] = alpha * counts / len(labels)
    return concentration


def _draw_counts(
    shares: npt.NDArray[np.float64],
    left: Indices,
    size: int,
    rng: np.random.Generator,
) -> Indices:
    """Return how many samples to take of each label: ``size`` in all, at most ``left`` each."""
    chosen = np.zeros_like(left)
    while chosen.sum() < size:
        open_labels = chosen < left
        weights = np.where(open_labels, shares, 0)
        if not weights.sum() > 0:
            weights = open_labels.astype(np.float64)
        drawn = rng.multinomial(size - int(chosen.sum()), weights / weights.sum())
        chosen = np.minimum(chosen + drawn, left)
    return chosen
