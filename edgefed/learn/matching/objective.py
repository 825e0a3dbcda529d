"""The objective of BBP-MAP: how probable a whole matching is, constants left out.

    F = sum_i (|T_i|^2 / Lambda_i - |s0 mu0|^2 / s0)
        + 2 sum_i log B(m_i, J - m_i + 1) + 2 L log gamma

over the L atoms; B is the beta function, J the number of devices.
"""

from __future__ import annotations

from math import lgamma, log

import numpy as np

from edgefed.learn.matching.atoms import Atoms
from edgefed.learn.types import Array


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


def prior_term(counts: Array, devices: int, gamma: float) -> float:
    """Return ``2 sum_i log B(m_i, J - m_i + 1) + 2 L log gamma``."""
    table = [lgamma(held) + lgamma(devices - held + 1) for held in range(1, devices + 1)]
    beta = np.array(table)[counts - 1] - lgamma(devices + 1)
    return 2.0 * float(beta.sum()) + 2.0 * len(counts) * log(gamma)
