"""Quantity skew: devices differ in the number of samples, not in labels.

Sizes ~ Dir(α). The partition ``iid-diff-quantity`` of NIID-Bench (Li et al., ICDE 2022).
"""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts
from edgefed.data.partitioners.draws import check_minimum, cuts, draws, given_up


def quantity(
    labels: Indices,
    devices: int,
    alpha: float,
    rng: np.random.Generator,
    *,
    min_samples: int = 10,
) -> Parts:
    """Return one part for each device: disjoint, and together all samples.

    Args:
        labels: (n,); only their number matters.
        devices: number of parts.
        alpha: concentration of each device's share; smaller is more skewed.
        rng: draws sizes and samples.
        min_samples: fewest samples in a part; draws are repeated until all have them.

    Raises:
        DataError: no draw gave every device ``min_samples``.
    """
    check_minimum(len(labels), devices, min_samples)
    tries = draws(1, devices)
    for _ in range(tries):
        ends = cuts(rng.dirichlet(np.full(devices, alpha)), len(labels))
        if ends is not None and np.diff(ends, prepend=0, append=len(labels)).min() >= min_samples:
            return tuple(np.split(rng.permutation(len(labels)), ends))
    raise given_up(tries, alpha, devices, min_samples)
