"""Matched averaging of one layer (PFNM, FedMA): which units of devices are the same unit.

Yurochkin et al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks"; Wang et al.
2020, "Federated Learning with Matched Averaging". A device's units are noisy copies of some of the
atoms of a Beta process; BBP-MAP assigns the units of one device at a time, given the others, by an
exact linear assignment. docs/matched-averaging.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.matching.atoms import Units
from edgefed.learn.matching.checks import check_bound, check_classes
from edgefed.learn.matching.problem import Matched as Matched  # noqa: PLC0414 - this module's result
from edgefed.learn.matching.problem import MatchingProblem, stated
from edgefed.learn.matching.settings import MatchSettings
from edgefed.learn.matching.sweeps import Prior, Search
from edgefed.learn.matching.variances import FIRST, SECOND, Start, refitted, restarted


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
    least = [max(len(chosen) for chosen in of_class) for of_class in rows]
    check_bound(prior.most, sum(least))
    assignments = [np.empty(len(kind), np.int64) for kind in classes]
    sweeps, atoms = 0, 0
    for of_class, own in zip(rows, least, strict=True):
        most = prior.most and own + (prior.most - sum(least)) * own // sum(least)
        members = [
            Units(units.values[chosen], units.precision)
            for units, chosen in zip(devices, of_class, strict=True)
        ]
        search = Search(members, replace(prior, most=most), settings)
        sweeps = max(sweeps, search.run(rng))
        for whole, chosen, part in zip(assignments, of_class, search.assignments, strict=True):
            whole[chosen] = part + atoms
        atoms += search.atoms.size
    return tuple(assignments), sweeps


def least_atoms(classes: Sequence[Array]) -> int:
    """Return the number of atoms that every matching needs."""
    return sum(max(len(chosen) for chosen in of_class) for of_class in _rows(classes))


def _rows(classes: Sequence[Array]) -> list[list[Array]]:
    """Return the rows of each class's units, for each class and device."""
    names = np.unique(np.concatenate(list(classes)))
    return [[np.flatnonzero(kind == name) for kind in classes] for name in names]


def match_layer(
    weights: Sequence[Array],
    *,
    settings: MatchSettings,
    rng: np.random.Generator,
    devices: int | None = None,
    mean: Array | float = 0.0,
    precisions: Sequence[Array | float] | None = None,
    classes: Sequence[Array] | None = None,
    grow: bool = True,
) -> Matched:
    """Match the units of devices; equal arguments give equal bits.

    Args:
        weights: of each device, (units, numbers): the compared numbers of a unit in a row.
        settings: variances, mass, penalty and bounds.
        rng: draws the order of devices in each sweep.
        devices: the number of devices J of the prior, at least as many as there are weights;
            by default equally many.
        mean: mu0, the mean of atoms: a number, or one a column.
        precisions: how precise each device's units are, relative to ``1 / sigma``: a number, or
            one a column, 0 for columns of which a device knows nothing. All 1 by default.
        classes: int (units,) of each device. Units of different classes never share an atom;
            atoms are in the order of their classes.
        grow: if not, there are as many atoms as the largest device has units, in each class.

    Raises:
        DataError: the weights cannot be matched (``matching.values``, ``matching.shape``, …), or
            not within the bound (``matching.bound``).
    """
    problem = stated(weights, settings, devices, mean, precisions)
    labels = [np.zeros(len(weight), np.int64) for weight in weights] if classes is None else classes
    check_classes(labels, weights)
    most = settings.most_atoms if grow else least_atoms(labels)
    again = deepcopy(rng)  # both searches visit devices in the same orders
    best = _estimated(problem, labels, most, FIRST, rng)
    start = restarted(problem.units, problem.relative, best.assignments, settings)
    if start is not None:
        second = _estimated(problem.with_variances(*start), labels, most, SECOND, again)
        best = max(best, second, key=_Found.likelihood)
    return best.problem.matched(best.assignments, best.sweeps)


@dataclass(frozen=True)
class _Found:
    """The result of a search.

    Attributes:
        problem: with the variances that were used.
        sweeps: done after the first pass.
    """

    problem: MatchingProblem
    assignments: tuple[Array, ...]
    sweeps: int

    def likelihood(self) -> float:
        return self.problem.likelihood(self.assignments)


def _estimated(
    problem: MatchingProblem,
    labels: Sequence[Array],
    most: int | None,
    start: Start,
    rng: np.random.Generator,
) -> _Found:
    """Match the units, and again while the variances that follow differ from those used."""
    assignments, sweeps = _searched(problem, labels, most, rng)
    for _ in range(start.refits):
        again = refitted(
            problem.units, problem.relative, assignments, problem.sigma, problem.settings, start
        )
        if again is None:
            break
        problem = problem.with_variances(*again)
        assignments, sweeps = _searched(problem, labels, most, rng)
    return _Found(problem, assignments, sweeps)


def _searched(
    problem: MatchingProblem, labels: Sequence[Array], most: int | None, rng: np.random.Generator
) -> tuple[tuple[Array, ...], int]:
    prior = Prior(problem.prior, problem.devices, most)
    return search_classes(problem.units, labels, prior, problem.settings, rng)
