"""The variances of a matching, estimated from the weights: ``sigma = "auto"``.

``sigma`` is how much units of two devices differ when they are paired by least squares: the mean of
``(a - b)^2 / 2`` over the pairs of the largest devices. With tau, the mean square of a unit's
numbers, ``rho = sigma / tau`` lies between 0, where devices have equal units, and about 1, where
they have nothing in common.

``sigma0`` is not ``tau - sigma``. The objective leaves out the normalising constants of the
Gaussians, so with true variances it is indifferent between matching a unit with its own atom and
making a new one. With them, a unit belongs to an atom at distance d rather than to a new one if

    d^2 / sigma + log sigma < v^2 / tau + log tau

per number, where v^2 is about tau; without them, if ``d^2 / sigma < v^2 / (sigma + sigma0)``. Both
agree for

    sigma0 = tau / (1 - log rho) - sigma

That holds for units that all differ as much. Those of networks do not: a few move far while most
stay where they began, and would each become an atom. So ``sigma0`` is at most ``sigma / 4``: a unit
is never new if it differs from an atom of many devices by less than 0.8 of its own square. From an
unrelated atom it differs by about twice that square.

Pairs include units that only one device has, which makes the first estimate too large. After a
matching ``sigma`` is estimated again, within atoms, as long as it falls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import log

import numpy as np

from edgefed.learn.matching.assignment import solved
from edgefed.learn.matching.atoms import Units
from edgefed.learn.matching.average import pooled
from edgefed.learn.matching.settings import MatchSettings
from edgefed.learn.types import Array

NEVER_NEW = 0.8
"""Share of its square by which a unit may differ from an atom of many devices and still be one."""

LEAST, MOST = 2.0**-20, 0.9375
"""Bounds of rho: equal devices leave a positive variance, unrelated ones a prior."""

REFITS, FALL = 4, 0.9
"""Sigma is estimated again at most so often, and only if it falls below this part."""

_PAIRED = 3
"""So many of the largest devices are paired with each other."""


def variances(
    values: Sequence[Array], relative: Sequence[Array], settings: MatchSettings
) -> tuple[float, float]:
    """Return ``sigma`` and ``sigma0``, those of the settings where they are numbers.

    Scaling all weights by a factor scales both by its square; by a power of two, exactly.

    Args:
        values: a device's units (units, numbers), less the mean of atoms.
        relative: a device's precision times sigma, (1,) or (numbers,).
        settings: of the matching.
    """
    total = _mean_square(values, relative)
    sigma = _sigma(values, relative, total) if settings.sigma == "auto" else settings.sigma
    if settings.sigma0 != "auto":
        return sigma, settings.sigma0
    ratio = min(max(sigma / total, LEAST), MOST) if total > 0.0 else MOST
    return sigma, sigma * (1.0 / max(NEVER_NEW, ratio * (1.0 - log(ratio))) - 1.0)


def refitted(
    units: Sequence[Units],
    relative: Sequence[Array],
    assignments: Sequence[Array],
    sigma: float,
    settings: MatchSettings,
) -> tuple[float, float] | None:
    """Return the variances within the atoms of a matching, None if ``sigma`` hardly falls.

    Args:
        units: of the devices, less the mean of atoms.
        relative: a device's precision times sigma, (1,) or (numbers,).
        assignments: of the devices, found with ``sigma``.
        sigma: variance of a unit around its atom.
        settings: of the matching.
    """
    if settings.sigma != "auto":
        return None
    values = [each.values for each in units]
    within = max(_within(values, relative, assignments), LEAST * _mean_square(values, relative))
    if not 0.0 < within < FALL * sigma:
        return None
    return variances(values, relative, replace(settings, sigma=within))


def _within(
    values: Sequence[Array], relative: Sequence[Array], assignments: Sequence[Array]
) -> float:
    """Return the mean square of units around the means of their atoms."""
    weighted = [Units(each, by) for each, by in zip(values, relative, strict=True)]
    atoms = pooled(weighted, assignments, np.zeros(max(len(by) for by in relative)))
    known = np.zeros_like(atoms.precisions)
    means = atoms.sums / np.where(atoms.precisions > 0.0, atoms.precisions, 1.0)
    squares = 0.0
    for units, by, assignment in zip(values, relative, assignments, strict=True):
        known[assignment] += by > 0.0
        squares += float((by * (units - means[assignment]) ** 2).sum())
    freedom = np.broadcast_to(np.maximum(known - 1.0, 0.0), means.shape).sum()
    return squares / float(freedom) if freedom else np.inf


def _sigma(values: Sequence[Array], relative: Sequence[Array], total: float) -> float:
    residual = _residual(values, relative) if total > 0.0 else 0.0
    return min(max(residual, LEAST * total), MOST * total) or 1.0


def _mean_square(values: Sequence[Array], relative: Sequence[Array]) -> float:
    """Return the precision-weighted mean of squares over all devices."""
    square = sum(
        float((np.einsum("ld,ld->d", units, units) * weight).sum())
        for units, weight in zip(values, relative, strict=True)
    )
    weights = sum(
        len(units) * float(np.broadcast_to(weight, units.shape[1:]).sum())
        for units, weight in zip(values, relative, strict=True)
    )
    return square / weights if weights > 0.0 else 0.0


def _residual(values: Sequence[Array], relative: Sequence[Array]) -> float:
    """Return half the mean square difference of units that are paired by least squares."""
    largest = sorted(range(len(values)), key=lambda device: -len(values[device]))[:_PAIRED]
    squares, numbers = 0.0, 0
    for one, other in combinations(largest, 2):
        total = relative[one] + relative[other]
        weight = relative[one] * relative[other] / np.where(total > 0.0, total, 1.0)
        known = np.broadcast_to(weight > 0.0, values[one].shape[1:])
        distances = _distances(values[one], values[other], weight)
        squares += float(_least(distances).sum())
        numbers += min(distances.shape) * int(known.sum())
    return squares / numbers if numbers else 0.0


def _distances(one: Array, other: Array, weight: Array) -> Array:
    own, others = (one**2 * weight).sum(axis=1), (other**2 * weight).sum(axis=1)
    distances: Array = own[:, None] + others - 2.0 * ((one * weight) @ other.T)
    return np.maximum(distances, 0.0)


def _least(distances: Array) -> Array:
    """Return the distances of the pairs whose sum is least."""
    paired = solved(-distances)
    rows = np.flatnonzero(paired >= 0)
    chosen: Array = distances[rows, paired[rows]]
    return chosen
