"""The median and the trimmed mean of each weight.

Yin, Chen, Ramchandran, Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical
Rates, ICML 2018, definitions 1 and 2. With x_1 .. x_n the values of one weight in n updates,
sorted:

    med  = x_{(n+1)/2}                           n odd
           (x_{n/2} + x_{n/2+1}) / 2             n even
    trm  = 1 / (n - 2k) sum_{i=k+1}^{n-k} x_i    k = floor(beta n)

The median stays within the values of honest devices while fewer than half are malicious, the
trimmed mean while at most k are. Both depend on the values only, not on their senders.
"""

from __future__ import annotations

import numpy as np

from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.robust.updates import Updates


def trimmed_count(share: float, count: int) -> int:
    """Return how many values are left out at each end."""
    # 0.29 * 100 is 28.999999999999996; at least one value is left
    return min(int(share * count + 1e-9), (count - 1) // 2)


def median_count(count: int) -> int:
    """Return how many values a median leaves out at each end: all but one or two."""
    return (count - 1) // 2


def sorted_mean(rows: Array, cut: int) -> Array:
    """Return the mean of each column without its ``cut`` least and largest values, in float64."""
    ordered = np.sort(rows, axis=0)
    kept = ordered[cut : len(rows) - cut]
    total = np.zeros(rows.shape[1], np.float64)
    for row in kept:  # in order of size: the same sum for any order of devices
        total += row
    return np.asarray(total / len(kept))


def coordinate_mean(updates: Updates, cut: int) -> Tensors:
    """Return the mean of each value without the ``cut`` least and largest; integers rounded."""
    names = tuple(updates.shapes)
    flat = updates.empty(names)
    for piece, rows in updates.stacks(names):
        mean = sorted_mean(rows, cut)
        if updates.dtypes[piece.name].kind in "iu":
            mean = np.floor(mean + 0.5)
        flat[piece.name][piece.start : piece.stop] = mean
    return {name: flat[name].reshape(updates.shapes[name]) for name in names}
