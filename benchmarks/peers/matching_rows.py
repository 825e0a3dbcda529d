"""The matching of the published implementation of FedMA, row by row, as plainly as it is written.

Each unit's costs come from temporaries as large as all atoms, and new atoms from ``vstack``. It has
the reference's settings: variances 1, gamma 7, popularity of factor 1 that counts at most 10
devices, 700 atoms and one more for each device, five sweeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import numpy as np
from scipy.optimize import linear_sum_assignment

from edgefed.learn.base.types import Array

GAMMA, COUNT_CAP, GROWTH_CAP, SWEEPS = 7.0, 10, 700, 5


class RowMatching:
    """The atoms' sums and counts, and who holds them."""

    def __init__(self, weights: Sequence[Array]) -> None:
        """Make the first device's units the atoms."""
        self._weights = weights
        self.sums = weights[0].copy()
        self.counts = [1] * len(weights[0])
        self.assignments = [list(range(len(weights[0]))), *([] for _ in weights[1:])]

    def run(self, seed: int) -> float:
        """Match all devices; return the data term of the objective."""
        for device in range(1, len(self._weights)):
            self._assign(device)
        rng = np.random.default_rng(seed)
        for _ in range(SWEEPS):
            for device in rng.permutation(len(self._weights)):
                self._remove(device)
                self._assign(device)
        held = 1.0 + np.array(self.counts)[:, None]
        return float((self.sums**2 / held).sum())

    def _costs(self, units: Array) -> Array:
        devices = len(self._weights)
        held = np.array(self.counts)
        capped = np.minimum(held, COUNT_CAP)
        precision = (1.0 + held)[:, None]
        rows = []
        for unit in units:
            gained = ((self.sums + unit) ** 2 / (precision + 1.0)).sum(axis=1)
            rows.append(gained - (self.sums**2 / precision).sum(axis=1))
        existing = np.vstack(rows) + np.log(capped / (devices - capped))
        columns = min(len(units), max(GROWTH_CAP - len(held), 1))
        new = (units**2 / 2.0).sum(axis=1)[:, None] + 2 * log(GAMMA / devices)
        return -np.hstack([existing, new - 2 * np.log(np.arange(1, columns + 1))])

    def _assign(self, device: int) -> None:
        units, assignment = self._weights[device], []
        size = len(self.counts)
        for unit, atom in zip(*linear_sum_assignment(self._costs(units)), strict=True):
            if atom < size:
                self.sums[atom] += units[unit]
                self.counts[atom] += 1
                assignment.append(int(atom))
            else:
                self.sums = np.vstack([self.sums, units[unit]])
                self.counts.append(1)
                assignment.append(len(self.counts) - 1)
        self.assignments[device] = assignment

    def _remove(self, device: int) -> None:
        for unit, atom in enumerate(self.assignments[device]):
            self.sums[atom] -= self._weights[device][unit]
            self.counts[atom] -= 1
        self.assignments[device] = []
        for atom in [atom for atom, held in enumerate(self.counts) if not held][::-1]:
            self.sums = np.delete(self.sums, atom, axis=0)
            del self.counts[atom]
            for other, assignment in enumerate(self.assignments):
                self.assignments[other] = [each - (each > atom) for each in assignment]
