"""BBP-MAP: assign the devices one after another, then each again given all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from edgefed.learn.matching_assignment import best_assignment
from edgefed.learn.matching_atoms import Atoms, Units
from edgefed.learn.matching_rewards import new_rewards, popularity, reward_matrix
from edgefed.learn.matching_settings import MatchSettings
from edgefed.learn.types import Array


@dataclass(frozen=True)
class Prior:
    """What is believed before any unit is seen.

    Attributes:
        precision: (1,) or (numbers,), inverse variance of atoms around their mean.
        devices: J.
        most: bound on the number of atoms.
    """

    precision: Array
    devices: int
    most: int | None


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
            self._assign(device)
        for sweep in range(1, self._settings.sweeps + 1):
            order = rng.permutation(len(self._devices))
            changed = [device for device in order if self._assign_again(device)]
            if not changed:
                return sweep
        return self._settings.sweeps

    def _fewer_units(self, device: int) -> int:
        return -len(self._devices[device].values)

    def _assign_again(self, device: int) -> bool:
        """Assign a device given all others; return whether its matching changed."""
        numbers = self.atoms.remove(self._devices[device], self.assignments[device])
        for other, assignment in enumerate(self.assignments):
            self.assignments[other] = numbers[assignment]
        before, held = self.assignments[device], self.atoms.size
        self._assign(device)
        after = self.assignments[device]
        return not np.array_equal(np.where(after < held, after, -1), before)

    def _assign(self, device: int) -> None:
        units, atoms, settings = self._devices[device], self.atoms, self._settings
        count = self._prior.devices
        popular = popularity(atoms.counts, count, settings.prior_factor, settings.count_cap)
        chosen = best_assignment(
            reward_matrix(units, atoms, popular),
            new_rewards(units, atoms.prior, 2.0 * log(settings.gamma / count)),
            self._room(len(units.values)),
            poisson=settings.new_penalty == "poisson",
        )
        atoms.add(units, chosen)
        self.assignments[device] = chosen

    def _room(self, units: int) -> int:
        """Return how many new atoms a device with so many units may add."""
        room, size = units, self.atoms.size
        if self._settings.growth_cap is not None:
            room = min(room, max(self._settings.growth_cap - size, 1, units - size))
        if self._prior.most is not None:
            room = min(room, self._prior.most - size)
        return room
