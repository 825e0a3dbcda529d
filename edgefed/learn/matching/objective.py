"""The objective of BBP-MAP: how probable a whole matching is, constants left out.

    F = sum_i (|T_i|^2 / Lambda_i - |s0 mu0|^2 / s0)
        + 2 sum_i log B(m_i, J - m_i + 1) + 2 L log gamma

over the L atoms; B is the beta function, J the number of devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma, log, pi

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.matching.atoms import Atoms, Units


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
    table = [lgamma(held) + lgamma(devices - held + 1) for held in range(1, devices + 1)]
    beta = np.array(table)[counts - 1] - lgamma(devices + 1)
    return 2.0 * float(beta.sum()) + 2.0 * len(counts) * log(gamma)
