"""The atoms of a matching: posterior sums, precisions and counts, which units join and leave."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from edgefed.learn.base.types import Array


@dataclass(frozen=True)
class Units:
    """A device's units.

    Attributes:
        values: float64 (units, numbers), less the mean of atoms.
        precision: float64 (1,) or (numbers,), the inverse variance around an atom.
    """

    values: Array
    precision: Array

    @cached_property
    def weighted(self) -> Array:
        """Values times precision: the units' contribution to their atoms' sums."""
        weighted: Array = self.precision * self.values
        return weighted

    @cached_property
    def squares(self) -> Array:
        """Of each unit's length, float64 (units,)."""
        squares: Array = np.einsum("ld,ld->l", self.values, self.values)
        return squares


class Atoms:
    """The atoms that units of devices have joined; removal of units keeps no empty atom.

    The posterior of atom i has the mean ``sums[i] / precisions[i]``, less the mean of atoms.
    """

    def __init__(self, numbers: int, prior: Array, room: int) -> None:
        """Begin without atoms.

        Args:
            numbers: in a unit.
            prior: float64 (1,) or (numbers,), the inverse variance of atoms around their mean.
            room: atoms that fit before memory is enlarged.
        """
        self.prior = prior
        self.size = 0
        self._sums = np.empty((room, numbers))
        self._precisions = np.empty((room, len(prior)))
        self._counts = np.empty(room, np.int64)

    @property
    def sums(self) -> Array:
        """Of precision times value over an atom's units, float64 (atoms, numbers)."""
        return self._sums[: self.size]

    @property
    def precisions(self) -> Array:
        """The prior's plus those of an atom's units, float64 (atoms, 1) or (atoms, numbers)."""
        return self._precisions[: self.size]

    @property
    def counts(self) -> Array:
        """How many units an atom has, which is how many devices hold it; int64 (atoms,)."""
        return self._counts[: self.size]

    def add(self, units: Units, assignment: Array) -> None:
        """Let each unit join its atom; atoms from ``size`` on are new."""
        old, self.size = self.size, max(self.size, int(assignment.max(initial=-1)) + 1)
        self._make_room()
        self.sums[old:] = 0.0
        self.precisions[old:] = self.prior
        self.counts[old:] = 0
        self._sums[assignment] += units.weighted
        self._precisions[assignment] += units.precision
        self._counts[assignment] += 1

    def remove(self, units: Units, assignment: Array) -> Array:
        """Take the units from their atoms; return each atom's new number, -1 where it is gone."""
        self._sums[assignment] -= units.weighted
        self._precisions[assignment] -= units.precision
        self._counts[assignment] -= 1
        held = self.counts > 0
        numbers = np.where(held, np.cumsum(held) - 1, -1)
        if not held.all():
            left = int(held.sum())
            for array in (self._sums, self._precisions, self._counts):
                array[:left] = array[: self.size][held]
            self.size = left
        return numbers

    def _make_room(self) -> None:
        if self.size <= len(self._counts):
            return
        room = 2 * self.size
        for name in ("_sums", "_precisions", "_counts"):
            old = getattr(self, name)
            larger = np.empty((room, *old.shape[1:]), old.dtype)
            larger[: len(old)] = old
            setattr(self, name, larger)
