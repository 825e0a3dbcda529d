"""BBP-MAP: assign the devices one after another, then each again given all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from edgefed.learn.base.types import Array
from edgefed.learn.matching.assignment import best_assignment
from edgefed.learn.matching.atoms import Atoms, Units
from edgefed.learn.matching.rewards import new_rewards, popularity, reward_matrix
from edgefed.learn.matching.settings import MatchSettings


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
        largest = max(len(each.values) for each in devices)
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
        return not np.array_equal(np.where(after < held, after, -1), before)
