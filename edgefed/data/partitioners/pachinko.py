"""Pachinko allocation: each device draws coarse labels, then labels within each coarse label.

θ ~ Dir(α) over the remaining coarse labels and, for each of them, φ ~ Dir(β) over its remaining
labels. For each sample: coarse ~ θ, label ~ φ of it, and one of its samples without replacement. An
exhausted label is removed from φ, an exhausted coarse label from θ. Reddi et al.,
Adaptive Federated Optimization, ICLR 2021: CIFAR-100, 500 devices of 100 samples, α = 0.1, β = 10.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts

Weights = npt.NDArray[np.float64]


def pachinko(
    labels: Indices,
    coarse: Indices,
    devices: int,
    rng: np.random.Generator,
    *,
    coarse_alpha: float = 0.1,
    fine_alpha: float = 10.0,
) -> Parts:
    """Return ``devices`` parts, together all samples, whose sizes differ by at most one.

    Args:
        labels: (n,) integers.
        coarse: (classes,) the coarse label of each label.
        devices: number of parts, at most n.
        rng: draws proportions and samples.
        coarse_alpha: concentration of the coarse labels (α).
        fine_alpha: concentration of the labels under a coarse one (β).
    """
    pools = [rng.permutation(np.flatnonzero(labels == label)) for label in range(len(coarse))]
    left = np.array([len(pool) for pool in pools])
    parts = []
    for device in range(devices):
        size = len(labels) // devices + (device < len(labels) % devices)
        before = left.copy()
        _draw(left, coarse, size, rng, coarse_alpha, fine_alpha)
        pieces = [pool[after:start] for pool, after, start in zip(pools, left, before, strict=True)]
        parts.append(rng.permutation(np.concatenate(pieces)))
    return tuple(parts)


def _draw(
    left: Indices,
    coarse: Indices,
    size: int,
    rng: np.random.Generator,
    coarse_alpha: float,
    fine_alpha: float,
) -> None:
    """Take ``size`` samples from ``left``, which counts each label's remaining ones."""
    kinds = np.unique(coarse[left > 0])
    theta = _proportions(len(kinds), coarse_alpha, rng)
    members = {kind: np.flatnonzero((coarse == kind) & (left > 0)) for kind in kinds.tolist()}
    phi = {kind: _proportions(len(of), fine_alpha, rng) for kind, of in members.items()}
    remaining = np.array([left[members[kind]].sum() for kind in kinds.tolist()])
    for _ in range(size):
        place = _pick(theta, remaining > 0, rng)
        kind = int(kinds[place])
        label = members[kind][_pick(phi[kind], left[members[kind]] > 0, rng)]
        left[label] -= 1
        remaining[place] -= 1


def _proportions(count: int, alpha: float, rng: np.random.Generator) -> Weights:
    return rng.dirichlet(np.full(count, alpha))


def _pick(weights: Weights, alive: npt.NDArray[np.bool_], rng: np.random.Generator) -> int:
    """Draw one of those alive by weight; evenly where all their weight is 0."""
    open_weights = np.where(alive, weights, 0)
    if not open_weights.sum() > 0:
        open_weights = alive.astype(np.float64)
    cumulative = np.cumsum(open_weights)
    # In [0, 1) times the sum stays below it but for rounding, hence the last with any weight.
    place = int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))
    return min(place, int(np.flatnonzero(open_weights)[-1]))
