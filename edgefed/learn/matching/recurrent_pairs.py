"""The recurrent weights of atoms: of each pair of hidden units, in each gate.

A hidden-to-hidden weight connects two units, so it belongs to a pair of atoms. The model is that of
a unit's other numbers: the weight of a pair of atoms is normal around 0 with variance sigma0, that
of a device's pair around it with variance sigma.
"""

from __future__ import annotations

import numpy as np

from edgefed.learn.base.types import Array


class Pairs:
    """Sums and precisions of the recurrent weights of pairs of atoms, over the devices added."""

    def __init__(self, gates: int, prior: float) -> None:
        """Begin without atoms; ``prior`` is the inverse variance around 0."""
        self._prior = prior
        self._sums: Array = np.zeros((gates, 0, 0))
        self._precisions: Array = np.zeros((0, 0))

    def add(self, recurrence: Array, precision: float, assignment: Array) -> None:
        """Add a device's weights (gates, units, units)."""
        self.enlarge(int(assignment.max(initial=-1)) + 1)
        pairs = np.ix_(assignment, assignment)
        self._sums[:, pairs[0], pairs[1]] += precision * recurrence
        self._precisions[pairs] += precision

    def remove(self, recurrence: Array, precision: float, assignment: Array) -> None:
        """Take a device's weights away."""
        pairs = np.ix_(assignment, assignment)
        self._sums[:, pairs[0], pairs[1]] -= precision * recurrence
        self._precisions[pairs] -= precision

    def renumber(self, numbers: Array) -> None:
        """Drop the atoms whose new number is -1."""
        kept = np.flatnonzero(numbers >= 0)
        self._sums = self._sums[:, kept[:, None], kept]
        self._precisions = self._precisions[np.ix_(kept, kept)]

    def enlarge(self, size: int) -> None:
        """Make room for ``size`` atoms."""
        more = max(size - len(self._precisions), 0)
        self._sums = np.pad(self._sums, ((0, 0), (0, more), (0, more)))
        self._precisions = np.pad(self._precisions, ((0, more), (0, more)), constant_values=0.0)

    def data_term(self) -> float:
        """Return ``sum T^2 / Lambda`` over pairs and gates."""
        return float((self._sums**2 / (self._prior + self._precisions)).sum())

    def total(self, recurrence: Array, precision: float, assignment: Array) -> float:
        """Return the reward of an assignment, less ``s u^2``; it is quadratic in it."""
        means, common = self._posterior(precision)
        rows, columns = np.ix_(assignment, assignment)
        squares = (recurrence - means[:, rows, columns]) ** 2
        return -float((common[rows, columns] * squares).sum())

    def linearised(self, recurrence: Array, precision: float, assignment: Array) -> Array:
        """Return the gain in reward from each unit in each atom; float64 (units, atoms).

        Each other unit is in the atom that ``assignment`` names.
        """
        means, common = self._posterior(precision)
        weighted = common * means
        squares = weighted * means
        # Of unit u in atom i and every v: weights from v to u, and from u to v.
        into = common[:, assignment], weighted[:, :, assignment], squares[:, :, assignment]
        out = common[assignment].T, weighted[:, assignment], squares[:, assignment]
        rewards = np.zeros((len(assignment), len(common)))
        for gate, own in enumerate(recurrence):
            rewards -= own**2 @ into[0].T + (own.T) ** 2 @ out[0].T
            rewards += 2.0 * (own @ into[1][gate].T + own.T @ out[1][gate])
            rewards -= into[2][gate].sum(axis=1) + out[2][gate].sum(axis=0)
        return rewards

    def _posterior(self, precision: float) -> tuple[Array, Array]:
        precisions = self._prior + self._precisions
        return self._sums / precisions, precisions * precision / (precisions + precision)
