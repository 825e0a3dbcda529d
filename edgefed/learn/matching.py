"""Matched averaging of one layer (PFNM, FedMA): which units of devices are the same unit.

Yurochkin et al. 2019, "Bayesian Nonparametric Federated Learning of Neural Networks"; Wang et al.
2020, "Federated Learning with Matched Averaging". A device's units are noisy copies of some of the
atoms of a Beta process; BBP-MAP assigns the units of one device at a time, given the others, by an
exact linear assignment. docs/matched-averaging.md has the formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgefed.learn.matching_atoms import Units
from edgefed.learn.matching_average import averaged, pooled
from edgefed.learn.matching_checks import (
    check_classes,
    check_devices,
    check_precisions,
    check_weights,
)
from edgefed.learn.matching_classes import least_atoms, search_classes
from edgefed.learn.matching_objective import objective
from edgefed.learn.matching_settings import MatchSettings
from edgefed.learn.matching_sweeps import Prior
from edgefed.learn.matching_variances import variances
from edgefed.learn.types import Array


@dataclass(frozen=True)
class Matched:
    """A matching of one layer.

    Attributes:
        assignments: int64 (units,) of each device, in the order given: the atom of each unit. No
            two units of a device have the same atom.
        atoms: float64 (atoms, numbers), averaged as the settings say.
        counts: int64 (atoms,), how many devices hold each atom.
        objective: of the matching, with the exact prior; see ``matching_objective``.
        sweeps: done after the first pass.
        sigma: variance that was used for a device's unit around its atom.
        sigma0: variance that was used for atoms around their mean.
    """

    assignments: tuple[Array, ...]
    atoms: Array
    counts: Array
    objective: float
    sweeps: int
    sigma: float
    sigma0: float


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
    check_weights(weights)
    prior_mean = np.atleast_1d(np.asarray(mean, np.float64))
    values = [np.asarray(each, np.float64) - prior_mean for each in weights]
    relative = _relative(precisions, weights)
    sigma, sigma0 = variances(values, relative, settings)
    units = [Units(each, by / sigma) for each, by in zip(values, relative, strict=True)]
    labels = [np.zeros(len(each), np.int64) for each in weights] if classes is None else classes
    check_classes(labels, weights)
    prior = Prior(
        np.full(_widest(relative), 1.0 / sigma0),
        _count(devices, weights),
        settings.most_atoms if grow else least_atoms(labels),
    )
    assignments, sweeps = search_classes(units, labels, prior, settings, rng)
    posterior = pooled(units, assignments, prior.precision)
    atoms = averaged(posterior, values, relative, assignments, settings.average)
    return Matched(
        assignments=assignments,
        atoms=atoms + prior_mean,
        counts=posterior.counts.copy(),
        objective=objective(posterior, prior_mean, prior.devices, settings.gamma),
        sweeps=sweeps,
        sigma=sigma,
        sigma0=sigma0,
    )


def _count(devices: int | None, weights: Sequence[Array]) -> int:
    if devices is None:
        return len(weights)
    check_devices(devices, weights)
    return devices


def _relative(
    precisions: Sequence[Array | float] | None, weights: Sequence[Array]
) -> Sequence[Array]:
    if precisions is None:
        return [np.ones(1)] * len(weights)
    relative = [np.atleast_1d(np.asarray(each, np.float64)) for each in precisions]
    check_precisions(relative, weights)
    return relative


def _widest(relative: Sequence[Array]) -> int:
    return max(len(each) for each in relative)
