"""Every device gets a random, equal part of the samples."""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts


def iid(labels: Indices, devices: int, rng: np.random.Generator) -> Parts:
    """Return ``devices`` parts whose sizes differ by at most one.

    Args:
        labels: (n,); only how many there are matters.
        devices: number of parts, at most n.
        rng: draws the permutation.
    """
    return tuple(np.array_split(rng.permutation(len(labels)), devices))
