"""Layers whose matching is known, and the formulas of a matching written as loops."""

from __future__ import annotations

from collections.abc import Sequence
from math import lgamma, log

import numpy as np

from edgefed.learn.base.types import Array


def planted(
    devices: int, units: int, numbers: int, *, noise: float = 0.3, seed: int = 0
) -> tuple[list[Array], list[Array]]:
    """Return devices' noisy copies of the same atoms, and each unit's atom."""
    rng = np.random.default_rng(seed)
    atoms = rng.standard_normal((units, numbers))
    orders, weights = [], []
    for _ in range(devices):
        orders.append(rng.permutation(units))
        weights.append(atoms[orders[-1]] + noise * rng.standard_normal(atoms.shape))
    return weights, orders


def unrelated(devices: int, units: int, numbers: int, *, seed: int = 0) -> list[Array]:
    """Return devices with nothing in common."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((units, numbers)) for _ in range(devices)]


def pairs(assignments: Sequence[Array]) -> Array:
    """Return which units of all devices share an atom, whatever the atoms' numbers."""
    every = np.concatenate(list(assignments))
    same: Array = every[:, None] == every
    return same


def naive_reward(unit: Array, precision: Array, total: Array, held: Array) -> float:
    """Return the data term of an atom's reward by its definition: with the unit, and without."""
    reward = 0.0
    for value, s, t, known in zip(unit, precision, total, held, strict=True):
        reward += (t + s * value) ** 2 / (known + s) - t**2 / known
    return reward


def naive_objective(
    weights: Sequence[Array],
    assignments: Sequence[Array],
    *,
    sigma: float,
    sigma0: float,
    gamma: float,
    mean: float = 0.0,
) -> float:
    """Return the exact objective by its definition, atom for atom."""
    devices, value = len(weights), 0.0
    for atom in range(1 + max(int(each.max()) for each in assignments)):
        total = np.full(weights[0].shape[1], mean / sigma0)
        held = 0
        for units, assignment in zip(weights, assignments, strict=True):
            for unit in units[assignment == atom]:
                total += unit / sigma
                held += 1
        value += float((total**2).sum()) / (1 / sigma0 + held / sigma)
        value -= weights[0].shape[1] * (mean / sigma0) ** 2 * sigma0
        value += 2 * (lgamma(held) + lgamma(devices - held + 1) - lgamma(devices + 1))
        value += 2 * log(gamma)
    return value


def sharing(
    devices: int, units: int, numbers: int, overlap: float, *, noise: float = 0.2, seed: int = 0
) -> tuple[list[Array], list[Array]]:
    """Return devices that each hold some of the same atoms, and each unit's atom.

    Args:
        overlap: a device's units as a fraction of all atoms; 0 for devices with nothing in common.
    """
    rng = np.random.default_rng(seed)
    atoms = rng.standard_normal((round(units / overlap) if overlap else devices * units, numbers))
    if overlap:
        orders = [rng.permutation(len(atoms))[:units] for _ in range(devices)]
    else:
        orders = list(rng.permutation(len(atoms)).reshape(devices, units))
    weights = [atoms[each] + noise * rng.standard_normal((units, numbers)) for each in orders]
    return weights, orders


def misplaced(assignments: Sequence[Array], orders: Sequence[Array]) -> int:
    """Return how many units do not share their atom with just those that they belong to."""
    return int((pairs(assignments) != pairs(orders)).any(axis=1).sum())
