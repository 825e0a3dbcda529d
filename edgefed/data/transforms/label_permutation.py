"""Permute each device's labels by one of a few random permutations.

The clustering experiment of Federated Mixture of Experts (Reisser et al., 2021, appendix B): four
permutations, assigned to the devices at random.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from edgefed.data.types import Indices
from edgefed.samples import Samples


def label_orders(classes: int, orders: int, rng: np.random.Generator) -> Indices:
    """Return (orders, classes): in row k, label c becomes the entry at place c."""
    return np.array([rng.permutation(classes) for _ in range(orders)], np.int64)


def relabelled(samples: Samples, order: Indices) -> Samples:
    """Return the samples with each label c replaced by ``order[c]``; ``order`` is (classes,)."""
    return replace(samples, targets=order[samples.targets])
