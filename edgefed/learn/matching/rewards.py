"""Rewards of BBP-MAP: the gain of matching a unit with an atom, or of making it a new atom.

The reward of PFNM (Yurochkin et al. 2019) for unit v and atom i, whose posterior has sum T_i and
precision Lambda_i without the unit, is

    |T_i + s v|^2 / (Lambda_i + s) - |T_i|^2 / Lambda_i + 2 log(m_i / (J - m_i))

with s the device's precision and m_i the number of devices that hold the atom. With the posterior
mean theta_i = T_i / Lambda_i it is, summed over a unit's numbers,

    s v^2 - s Lambda_i / (s + Lambda_i) (v - theta_i)^2 + 2 log(m_i / (J - m_i))

whose first term no assignment changes. The functions here leave it out; the rest is a matrix
product, whose numbers are small where unit and atom are alike.
"""

from __future__ import annotations

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.matching.atoms import Atoms, Units


def reward_matrix(units: Units, atoms: Atoms, popular: Array) -> Array:
    """Return the reward of each unit for each atom, less ``s v^2``; float64 (units, atoms).

    Args:
        units: of one device, which are in none of the atoms.
        atoms: of the other devices.
        popular: the prior's part for each atom; see :func:`popularity`.
    """
    common = _common(atoms.precisions, units.precision)
    if common.shape[1] > 1:
        return _general(units.values, atoms, common) + popular
    scale, common = 1.0 / atoms.precisions[:, 0], common[:, 0]
    squares = np.einsum("id,id->i", atoms.sums, atoms.sums) * scale**2
    rewards: Array = units.values @ atoms.sums.T
    rewards *= 2.0 * scale * common
    rewards -= units.squares[:, None] * common
    rewards += popular - squares * common
    return rewards


def new_rewards(units: Units, prior: Array, mass: float) -> Array:
    """Return the reward of each unit as a new atom, less ``s v^2``; float64 (units,).

    Args:
        units: of one device.
        prior: inverse variance of atoms around their mean.
        mass: the prior's part, ``2 log(gamma / J)``.
    """
    common = _common(prior[None], units.precision)[0]
    lost = common[0] * units.squares if len(common) == 1 else units.values**2 @ common
    rewards: Array = mass - lost
    return rewards


def popularity(counts: Array, devices: int, factor: float, cap: int | None) -> Array:
    """Return ``factor * log(m / (J - m))`` for each atom, finite even where m is J.

    Args:
        counts: how many other devices hold each atom, m.
        devices: J.
        factor: 2, or 1 in the reference implementation.
        cap: m counts at most so much.
    """
    bound = max(devices - 1, 1)
    held = np.minimum(counts, bound if cap is None else min(cap, bound))
    rewards: Array = factor * np.log(held / np.maximum(devices - held, 1))
    return rewards


def _common(precisions: Array, precision: Array) -> Array:
    common: Array = precisions * precision / (precisions + precision)
    return common


def _general(values: Array, atoms: Atoms, common: Array) -> Array:
    means = atoms.sums / atoms.precisions
    weighted = common * means
    rewards: Array = values @ (2.0 * weighted).T
    rewards -= values**2 @ common.T
    rewards -= np.einsum("id,id->i", weighted, means)
    return rewards
