"""The numbers of atoms, computed from their units in the order of devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.matching.atoms import Atoms, Units
from edgefed.learn.matching.settings import Average


def pooled(devices: Sequence[Units], assignments: Sequence[Array], prior: Array) -> Atoms:
    """Return the atoms that the devices' units have joined."""
    size = 1 + max((int(assignment.max(initial=-1)) for assignment in assignments), default=-1)
    atoms = Atoms(devices[0].values.shape[1], prior, size)
    for units, assignment in zip(devices, assignments, strict=True):
        atoms.add(units, assignment)
    return atoms


def averaged(
    posterior: Atoms,
    devices: Sequence[Units],
    relative: Sequence[Array],
    assignments: Sequence[Array],
    kind: Average,
) -> Array:
    """Return each atom's numbers, less the mean of atoms; float64 (atoms, numbers).

    Args:
        posterior: the atoms with all units.
        devices: their units.
        relative: weight of a device's units in a mean.
        assignments: of each device.
        kind: ``map``, ``matched`` or ``all``.
    """
    if kind == "map":
        maximum: Array = posterior.sums / posterior.precisions
        return maximum
    weighted = [Units(units.values, by) for units, by in zip(devices, relative, strict=True)]
    sums = pooled(weighted, assignments, np.zeros_like(posterior.prior))
    weights = sum(relative, np.zeros(1)) if kind == "all" else sums.precisions
    # Where no device knows a number, it is the mean of atoms.
    means: Array = sums.sums / np.where(weights > 0.0, weights, 1.0)
    return means
