"""Squared Euclidean distances between the updates of a cohort, and mixtures of updates.

Krum and the geometric median need nothing of the updates but these n x n numbers, and then one
weighted mean. Sums run in the order of devices and values, in float64, without a matrix library,
whose results depend on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgefed.learn.base.types import Array, Tensors
from edgefed.learn.robust.coordinate_rules import coordinate_mean, median_count
from edgefed.learn.robust.updates import Updates


def squared_distances(updates: Updates, names: Sequence[str]) -> Array:
    """Return float64 (devices, devices): squared distances of the named tensors."""
    distances = np.zeros((updates.count, updates.count), np.float64)
    for _, rows in updates.stacks(names):
        wide = rows.astype(np.float64)
        for number in range(updates.count - 1):
            difference = wide[number + 1 :] - wide[number]
            distances[number, number + 1 :] += np.square(difference).sum(axis=1)
    return distances + distances.T


def mixed(updates: Updates, shares: Array, names: Sequence[str]) -> Tensors:
    """Return the sum of shares times the updates, of the named floating-point tensors."""
    sums = {name: np.zeros(updates.shapes[name], np.float64) for name in names}
    for number in np.flatnonzero(shares):
        update = updates.read(int(number))
        for name in names:
            sums[name] += shares[number] * update[name].astype(np.float64)
    return {name: total.astype(updates.dtypes[name]) for name, total in sums.items()}


def integer_medians(updates: Updates) -> Tensors:
    """Return the median of each integer, such as counts of batches, over all updates."""
    names = updates.names("iu")
    if not names:
        return {}
    chosen = Updates(
        updates.count,
        updates.read,
        {name: updates.shapes[name] for name in names},
        {name: updates.dtypes[name] for name in names},
        updates.batch_bytes,
    )
    return coordinate_mean(chosen, median_count(updates.count))
