"""BBP-MAP: assign the devices one after another, then each again given all others.

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

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.matching.assignment import best_assignment
from edgefed.learn.matching.atoms import Atoms, Units
from edgefed.learn.matching.settings import MatchSettings


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


@dataclass(frozen=True)
class Prior:
    """The prior belief, before any unit is seen.

    Attributes:
        precision: (1,) or (numbers,), inverse variance of atoms around their mean.
        devices: J.
        most: bound on the number of atoms.
    """

    precision: Array
    devices: int
    most: int | None


@dataclass(frozen=True)
class Rewards:
    """Rewards of a device's units in each atom (units, atoms), and as new atoms (units,)."""

    existing: Array
    new: Array

    def best(self, room: int, *, poisson: bool) -> Array:
        """Return the best assignment with at most ``room`` new atoms."""
        return best_assignment(self.existing, self.new, room, poisson=poisson)

    def total(self, assignment: Array) -> float:
        """Return the reward of an assignment, without a penalty for new atoms."""
        known = np.flatnonzero(assignment < self.existing.shape[1])
        fresh = np.flatnonzero(assignment >= self.existing.shape[1])
        return float(self.existing[known, assignment[known]].sum() + self.new[fresh].sum())


class Search:
    """A matching in the making."""

    def __init__(self, devices: Sequence[Units], prior: Prior, settings: MatchSettings) -> None:
        """Begin with no device assigned."""
        self._devices = devices
        self._prior = prior
        self._settings = settings
        largest = max(len(device.values) for device in devices)
        self.atoms = Atoms(devices[0].values.shape[1], prior.precision, 2 * largest)
        self.assignments: list[Array] = [np.empty(0, np.int64) for _ in devices]

    def run(self, rng: np.random.Generator) -> int:
        """Assign all devices; return the number of sweeps that followed."""
        for device in sorted(range(len(self._devices)), key=self._fewer_units):
            self.add(device, self.best(device))
        for sweep in range(1, self._settings.sweeps + 1):
            order = rng.permutation(len(self._devices))
            changed = [device for device in order if self._assign_again(device)]
            if not changed:
                return sweep
        return self._settings.sweeps

    def add(self, device: int, assignment: Array) -> None:
        """Let a device's units join their atoms."""
        self.atoms.add(self._devices[device], assignment)
        self.assignments[device] = assignment

    def remove(self, device: int) -> Array:
        """Take a device's units from their atoms; return each atom's new number, -1 if gone."""
        numbers = self.atoms.remove(self._devices[device], self.assignments[device])
        self.assignments = [numbers[assignment] for assignment in self.assignments]
        return numbers

    def rewards(self, device: int) -> Rewards:
        """Return the rewards of a device that is not assigned."""
        units, settings, count = self._devices[device], self._settings, self._prior.devices
        popular = popularity(self.atoms.counts, count, settings.prior_factor, settings.count_cap)
        return Rewards(
            reward_matrix(units, self.atoms, popular),
            new_rewards(units, self.atoms.prior, 2.0 * log(settings.gamma / count)),
        )

    def best(self, device: int) -> Array:
        """Return the best assignment of a device that is not assigned."""
        rewards = self.rewards(device)
        return rewards.best(self.room(device), poisson=self._settings.new_penalty == "poisson")

    def room(self, device: int) -> int:
        """Return how many new atoms a device may add."""
        units, size = len(self._devices[device].values), self.atoms.size
        room = units
        if self._settings.growth_cap is not None:
            room = min(room, max(self._settings.growth_cap - size, 1, units - size))
        if self._prior.most is not None:
            room = min(room, self._prior.most - size)
        return room

    def _fewer_units(self, device: int) -> int:
        return -len(self._devices[device].values)

    def _assign_again(self, device: int) -> bool:
        """Assign a device given all others; return whether its matching changed."""
        self.remove(device)
        before, held = self.assignments[device], self.atoms.size
        after = self.best(device)
        self.add(device, after)
        # Units that are new again count as -1, whatever numbers their atoms have
        return not np.array_equal(np.where(after < held, after, -1), before)
