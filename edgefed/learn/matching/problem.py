"""The matching of one layer, stated: checked weights, variances and prior; and its result.

The objective of BBP-MAP is the log-probability of a whole matching, constants left out:

    F = sum_i (|T_i|^2 / Lambda_i - |s0 mu0|^2 / s0)
        + 2 sum_i log B(m_i, J - m_i + 1) + 2 L log gamma

over the L atoms; B is the beta function, J the number of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lgamma, log, pi

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.matching.atoms import Atoms, Units
from edgefed.learn.matching.average import averaged, pooled
from edgefed.learn.matching.checks import (
    check_devices,
    check_mean,
    check_precisions,
    check_weights,
)
from edgefed.learn.matching.settings import MatchSettings
from edgefed.learn.matching.variances import bounded, mean_square, variances


def objective(atoms: Atoms, mean: Array, devices: int, gamma: float) -> float:
    """Return F of a matching.

    Args:
        atoms: all of them, as sums of units less ``mean``.
        mean: mu0, float64 (1,) or (numbers,).
        devices: J.
        gamma: mass of the Beta process.
    """
    return data_term(atoms, mean) + prior_term(atoms.counts, devices, gamma)


def data_term(atoms: Atoms, mean: Array) -> float:
    """Return ``sum_i (|T_i|^2 / Lambda_i - |s0 mu0|^2 / s0)``."""
    precisions, sums = atoms.precisions, atoms.sums
    centred = sums**2 / precisions
    # T = Lambda mu0 + sums, and the prior's own |s0 mu0|^2 / s0 is s0 mu0^2.
    shift = (precisions - atoms.prior) * mean**2 + 2.0 * mean * sums
    return float((centred + shift).sum())


def log_likelihood(devices: Sequence[Units], atoms: Atoms) -> float:
    """Return the logarithm of the probability of all units given which of them share an atom.

    F lacks the terms that are needed to compare matchings with different variances. With precision
    s of a unit's number v, and n known numbers in all:

        1/2 sum_units sum (log s - s v^2) - n/2 log(2 pi)
            + 1/2 sum_atoms sum (log s0 - log Lambda + T^2 / Lambda)

    A number whose precision is 0 is not known and has no part in it.

    Args:
        devices: their units, less the mean of atoms.
        atoms: all of them, with these units.
    """
    total = 0.0
    for units in devices:
        precision = np.broadcast_to(units.precision, units.values.shape[1:])
        known = precision > 0.0
        logs = np.log(precision[known]).sum() - known.sum() * log(2.0 * pi)
        total += len(units.values) * float(logs) - float((units.values**2 @ precision).sum())
    fitted = np.log(atoms.prior / atoms.precisions) + atoms.sums**2 / atoms.precisions
    return (total + float(fitted.sum())) / 2.0


def prior_term(counts: Array, devices: int, gamma: float) -> float:
    """Return ``2 sum_i log B(m_i, J - m_i + 1) + 2 L log gamma``."""
    # log B(a, b) = lgamma(a) + lgamma(b) - lgamma(a + b), where a + b is J + 1
    table = [lgamma(held) + lgamma(devices - held + 1) for held in range(1, devices + 1)]
    beta = np.array(table)[counts - 1] - lgamma(devices + 1)
    return 2.0 * float(beta.sum()) + 2.0 * len(counts) * log(gamma)


@dataclass(frozen=True)
class Matched:
    """A matching of one layer.

    Attributes:
        assignments: int64 (units,) of each device, in the order given: the atom of each unit. No
            two units of a device have the same atom.
        atoms: float64 (atoms, numbers), averaged as the settings say.
        counts: int64 (atoms,), how many devices hold each atom.
        objective: of the matching, with the exact prior; see ``objective``.
        sweeps: done after the first pass.
        sigma: variance that was used for a device's unit around its atom.
        sigma0: variance that was used for atoms around their mean.
        apart: mean square of units around the means of their atoms, as a fraction of that of all
            units. Where ``sigma`` is ``auto`` and this is near 1, devices have hardly any units in
            common, or the estimate failed.
    """

    assignments: tuple[Array, ...]
    atoms: Array
    counts: Array
    objective: float
    sweeps: int
    sigma: float
    sigma0: float
    apart: float

    def known(self, settings: MatchSettings) -> MatchSettings:
        """Return settings with the variances of this matching."""
        return replace(settings, sigma=self.sigma, sigma0=self.sigma0)


@dataclass(frozen=True)
class MatchingProblem:
    """The input of a matching.

    Attributes:
        units: of each device, less the mean of atoms.
        relative: precision of each device's units, (1,) or (numbers,), relative to ``1 / sigma``.
        mean: mu0, (1,) or (numbers,).
        prior: (1,) or (numbers,), inverse variance of atoms around their mean.
        devices: J.
        sigma: variance of a device's unit around its atom.
        sigma0: variance of atoms around their mean.
        settings: as given.
    """

    units: Sequence[Units]
    relative: Sequence[Array]
    mean: Array
    prior: Array
    devices: int
    sigma: float
    sigma0: float
    settings: MatchSettings

    def with_variances(self, sigma: float, sigma0: float) -> MatchingProblem:
        """Return the problem with other variances."""
        units = [
            Units(units.values, by / sigma)
            for units, by in zip(self.units, self.relative, strict=True)
        ]
        prior = np.full_like(self.prior, 1.0 / sigma0)
        return replace(self, units=units, prior=prior, sigma=sigma, sigma0=sigma0)

    def posterior(self, assignments: Sequence[Array]) -> Atoms:
        """Return the atoms of a matching, computed from the units in the order of devices."""
        return pooled(self.units, assignments, self.prior)

    def likelihood(self, assignments: Sequence[Array]) -> float:
        """Return the log-probability of units and matching, with the variances that fit it best."""
        values = [unit.values for unit in self.units]
        sigma = bounded(values, self.relative, assignments)
        # The mean square of units is sigma + sigma0
        sigma0 = mean_square(values, self.relative) - sigma
        problem = self.with_variances(sigma, sigma0)
        posterior, gamma = problem.posterior(assignments), self.settings.gamma
        data = log_likelihood(problem.units, posterior)
        return data + prior_term(posterior.counts, self.devices, gamma) / 2.0

    def apart(self, assignments: Sequence[Array]) -> float:
        """Return the mean square of units around their atoms, as a fraction of that of all."""
        values = [unit.values for unit in self.units]
        total = mean_square(values, self.relative)
        return bounded(values, self.relative, assignments) / total if total > 0.0 else 0.0

    def matched(self, assignments: Sequence[Array], sweeps: int, more: float = 0.0) -> Matched:
        """Return the result; ``more`` is added to the objective."""
        posterior, gamma = self.posterior(assignments), self.settings.gamma
        atoms = averaged(posterior, self.units, self.relative, assignments, self.settings.average)
        return Matched(
            assignments=tuple(assignments),
            atoms=atoms + self.mean,
            counts=posterior.counts.copy(),
            objective=objective(posterior, self.mean, self.devices, gamma) + more,
            sweeps=sweeps,
            sigma=self.sigma,
            sigma0=self.sigma0,
            apart=self.apart(assignments),
        )


def stated(
    weights: Sequence[Array],
    settings: MatchSettings,
    devices: int | None,
    mean: Array | float,
    precisions: Sequence[Array | float] | None,
) -> MatchingProblem:
    """Check the arguments of a matching and estimate its variances.

    Raises:
        DataError: the weights cannot be matched.
    """
    check_weights(weights)
    count = len(weights) if devices is None else devices
    check_devices(count, weights)
    center = np.atleast_1d(np.asarray(mean, np.float64))
    check_mean(center, weights)
    values = [np.asarray(weight, np.float64) - center for weight in weights]
    relative: list[Array] = [np.ones(1)] * len(weights)
    if precisions is not None:
        relative = [np.atleast_1d(np.asarray(precision, np.float64)) for precision in precisions]
        check_precisions(relative, weights)
    units = [Units(array, by) for array, by in zip(values, relative, strict=True)]
    prior = np.ones(max(len(precision) for precision in relative))
    problem = MatchingProblem(units, relative, center, prior, count, 1.0, 1.0, settings)
    return problem.with_variances(*variances(values, relative, settings))
