"""The variances of a matching, estimated from the weights: ``sigma = "auto"``.

``sigma`` is how much units of two devices differ when they are paired by least squares: the mean of
``(a - b)^2 / 2`` over the pairs of the largest devices. With tau, the mean square of a unit's
numbers, ``rho = sigma / tau`` is between 0, where devices have equal units, and about 1, where they
have nothing in common.

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
matching ``sigma`` is estimated again, within atoms, as long as it falls. Where devices share few
units, nearly all pairs are such, and it does not fall: unrelated units then share atoms. So if more
than half of a unit's square remains around its atom, a second search starts from a low quantile of
the distances to the nearest unit of any other device. Its ``sigma`` also rises, and ``sigma0`` is
larger, as units that have no counterpart must not join an atom that one device holds. The full
likelihood decides between both results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import log

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.matching.assignment import solved
from edgefed.learn.matching.atoms import Units
from edgefed.learn.matching.average import pooled
from edgefed.learn.matching.settings import MatchSettings

LEAST, MOST = 2.0**-20, 0.9375
"""Bounds of rho: equal devices leave a positive variance, unrelated ones a prior."""

FALL = 0.9
"""Sigma is estimated again only if it falls below this part."""

APART = 0.5
"""A first search that leaves a larger rho than this is followed by a second one."""

_PAIRED = 3
"""So many of the largest devices are paired with each other."""

_QUANTILE, _DEVICES, _UNITS = 0.05, 16, 32
"""The quantile of nearest distances, and of how many devices and units of each it is taken."""


@dataclass(frozen=True)
class Start:
    """From where, and how, a search estimates the variances.

    Attributes:
        never_new: share of its square by which a unit may differ from an atom of many devices and
            still be one.
        refits: how often at most sigma is estimated again.
        rises: whether it may rise then.
    """

    never_new: float
    refits: int
    rises: bool


FIRST, SECOND = Start(0.8, 4, rises=False), Start(0.3, 6, rises=True)


def variances(
    values: Sequence[Array],
    relative: Sequence[Array],
    settings: MatchSettings,
    start: Start = FIRST,
) -> tuple[float, float]:
    """Return ``sigma`` and ``sigma0``, those of the settings where they are numbers.

    Scaling all weights by a factor scales both by its square; by a power of two, exactly.

    Args:
        values: a device's units (units, numbers), less the mean of atoms.
        relative: a device's precision times sigma, (1,) or (numbers,).
        settings: of the matching.
        start: of the search.
    """
    total = mean_square(values, relative)
    sigma = _sigma(values, relative, total) if settings.sigma == "auto" else settings.sigma
    if settings.sigma0 != "auto":
        return sigma, settings.sigma0
    ratio = min(max(sigma / total, LEAST), MOST) if total > 0.0 else MOST
    # tau / (1 - log rho) - sigma, and at most sigma (1 / never_new - 1)
    return sigma, sigma * (1.0 / max(start.never_new, ratio * (1.0 - log(ratio))) - 1.0)


def refitted(
    units: Sequence[Units],
    relative: Sequence[Array],
    assignments: Sequence[Array],
    sigma: float,
    settings: MatchSettings,
    start: Start = FIRST,
) -> tuple[float, float] | None:
    """Return the variances within the atoms of a matching, None if ``sigma`` hardly changes.

    Args:
        units: of the devices, less the mean of atoms.
        relative: a device's precision times sigma, (1,) or (numbers,).
        assignments: of the devices, found with ``sigma``.
        sigma: variance of a unit around its atom.
        settings: of the matching.
        start: of the search.
    """
    if settings.sigma != "auto":
        return None
    values = [unit.values for unit in units]
    if start.rises:
        within = bounded(values, relative, assignments)
        is_new = not FALL * sigma <= within <= sigma / FALL
    else:
        within = max(_within(values, relative, assignments), LEAST * mean_square(values, relative))
        is_new = 0.0 < within < FALL * sigma
    return variances(values, relative, replace(settings, sigma=within), start) if is_new else None


def restarted(
    units: Sequence[Units],
    relative: Sequence[Array],
    assignments: Sequence[Array],
    settings: MatchSettings,
) -> tuple[float, float] | None:
    """Return the variances that a second search starts from; None where the first one suffices.

    Args:
        units: of the devices, less the mean of atoms.
        relative: a device's precision times sigma, (1,) or (numbers,).
        assignments: of the devices, found by the first search.
        settings: of the matching.
    """
    values = [unit.values for unit in units]
    total = mean_square(values, relative)
    if settings.sigma != "auto" or len(values) < 2 or total == 0.0:
        return None
    if bounded(values, relative, assignments) <= APART * total:
        return None
    sigma = min(max(_nearest(values, relative), LEAST * total), MOST * total)
    return variances(values, relative, replace(settings, sigma=sigma), SECOND)


def bounded(
    values: Sequence[Array], relative: Sequence[Array], assignments: Sequence[Array]
) -> float:
    """Return the mean square of units around the means of their atoms, within its bounds."""
    total = mean_square(values, relative)
    return min(max(_within(values, relative, assignments), LEAST * total), MOST * total)


def _nearest(values: Sequence[Array], relative: Sequence[Array]) -> float:
    """Return a low quantile of half the mean square difference to the nearest unit elsewhere."""
    largest = sorted(range(len(values)), key=lambda device: -len(values[device]))[:_DEVICES]
    all_nearest = []
    for one in largest:
        # At most _UNITS of them, at equal distances
        units = values[one][:: max(1, -(-len(values[one]) // _UNITS))]
        nearest = np.full(len(units), np.inf)
        for other in largest:
            weight = _common(relative[one], relative[other])
            known = int(np.broadcast_to(weight > 0.0, units.shape[1:]).sum())
            if other != one and known:
                distances = _distances(units, values[other], weight)
                nearest = np.minimum(nearest, distances.min(axis=1, initial=np.inf) / known)
        all_nearest.append(nearest)
    every = np.concatenate(all_nearest)
    return (
        float(np.quantile(every[np.isfinite(every)], _QUANTILE))
        if np.isfinite(every).any()
        else 0.0
    )


def _within(
    values: Sequence[Array], relative: Sequence[Array], assignments: Sequence[Array]
) -> float:
    """Return the mean square of units around the means of their atoms."""
    weighted = [Units(units, by) for units, by in zip(values, relative, strict=True)]
    atoms = pooled(weighted, assignments, np.zeros(max(len(by) for by in relative)))
    known = np.zeros_like(atoms.precisions)
    means = atoms.sums / np.where(atoms.precisions > 0.0, atoms.precisions, 1.0)
    squares = 0.0
    for units, by, assignment in zip(values, relative, assignments, strict=True):
        known[assignment] += by > 0.0
        squares += float((by * (units - means[assignment]) ** 2).sum())
    # The mean of an atom takes one degree of freedom of each of its numbers
    freedom = np.broadcast_to(np.maximum(known - 1.0, 0.0), means.shape).sum()
    return squares / float(freedom) if freedom else np.inf


def _sigma(values: Sequence[Array], relative: Sequence[Array], total: float) -> float:
    residual = _residual(values, relative) if total > 0.0 else 0.0
    # Weights that are all 0 have no variance, and any positive one serves
    return min(max(residual, LEAST * total), MOST * total) or 1.0


def mean_square(values: Sequence[Array], relative: Sequence[Array]) -> float:
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
        weight = _common(relative[one], relative[other])
        known = np.broadcast_to(weight > 0.0, values[one].shape[1:])
        distances = _distances(values[one], values[other], weight)
        squares += float(_least(distances).sum())
        numbers += min(distances.shape) * int(known.sum())
    return squares / numbers if numbers else 0.0


def _common(one: Array, other: Array) -> Array:
    total = one + other
    common: Array = one * other / np.where(total > 0.0, total, 1.0)
    return common


def _distances(one: Array, other: Array, weight: Array) -> Array:
    own, others = (one**2 * weight).sum(axis=1), (other**2 * weight).sum(axis=1)
    distances: Array = own[:, None] + others - 2.0 * ((one * weight) @ other.T)
    # Rounding may leave nearly equal units a negative distance
    return np.maximum(distances, 0.0)


def _least(distances: Array) -> Array:
    """Return the distances of the pairs whose sum is least."""
    paired = solved(-distances)
    rows = np.flatnonzero(paired >= 0)
    chosen: Array = distances[rows, paired[rows]]
    return chosen
