"""Match the units of each class by themselves, such as the channels of a normalisation group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.matching.atoms import Units
from edgefed.learn.matching.checks import check_bound
from edgefed.learn.matching.settings import MatchSettings
from edgefed.learn.matching.sweeps import Prior, Search


def search_classes(
    devices: Sequence[Units],
    classes: Sequence[Array],
    prior: Prior,
    settings: MatchSettings,
    rng: np.random.Generator,
) -> tuple[tuple[Array, ...], int]:
    """Return the devices' assignments and the most sweeps that a class took.

    Atoms of a class follow those of the class before. A bound on all atoms is shared among classes:
    each gets as many atoms as its largest device has units, and its proportion of the rest.
    """
    rows = _rows(classes)
    least = [max(len(each) for each in of_class) for of_class in rows]
    check_bound(prior.most, sum(least))
    assignments = [np.empty(len(each), np.int64) for each in classes]
    sweeps, atoms = 0, 0
    for of_class, own in zip(rows, least, strict=True):
        most = prior.most and own + (prior.most - sum(least)) * own // sum(least)
        members = [
            Units(units.values[chosen], units.precision)
            for units, chosen in zip(devices, of_class, strict=True)
        ]
        search = Search(members, replace(prior, most=most), settings)
        sweeps = max(sweeps, search.run(rng))
        for whole, chosen, found in zip(assignments, of_class, search.assignments, strict=True):
            whole[chosen] = found + atoms
        atoms += search.atoms.size
    return tuple(assignments), sweeps


def least_atoms(classes: Sequence[Array]) -> int:
    """Return the number of atoms that every matching needs."""
    return sum(max(len(each) for each in of_class) for of_class in _rows(classes))


def _rows(classes: Sequence[Array]) -> list[list[Array]]:
    """Return the rows of each class's units, for each class and device."""
    names = np.unique(np.concatenate(list(classes)))
    return [[np.flatnonzero(each == name) for each in classes] for name in names]
