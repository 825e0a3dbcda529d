"""The best assignment of one device's units to atoms and new atoms, by scipy's exact solver."""

from __future__ import annotations

import numpy as np

from edgefed.learn.base.types import Array

FEW = 32
"""From this many new atoms on, pricing them is faster than a column for each."""

_HALVINGS = 40
_NOTHING = np.empty(0, np.int64)


def best_assignment(existing: Array, new: Array, room: int, *, poisson: bool) -> Array:
    """Return each unit's atom, at most one unit in an atom; numbers from ``atoms`` on are new.

    New atoms are numbered in the order of their units.

    Args:
        existing: rewards (units, atoms).
        new: rewards (units,) as a new atom.
        room: how many new atoms there may be; with the atoms at least as many as units.
        poisson: whether the k-th new atom costs ``2 log k``.
    """
    if not existing.shape[1]:
        return np.arange(len(new))
    gains = existing - new[:, None]
    chosen = _favourites(gains)
    wanted = int((chosen < 0).sum())
    if wanted <= room and _collide(chosen):
        # A unit is new where no atom gains by it. Without penalty and bound that is the answer,
        # and with them no more units are new: so the columns of new atoms can be as few.
        chosen = _gaining(gains)
        wanted = int((chosen < 0).sum())
    if wanted and (poisson or wanted > room):
        columns = min(wanted, room)
        chosen = _priced(gains, columns, poisson) if columns > FEW else _NOTHING
        if not len(chosen):
            chosen = _with_columns(existing, new, columns, poisson)
    fresh = chosen < 0
    chosen[fresh] = existing.shape[1] + np.arange(int(fresh.sum()))
    return chosen


def solved(rewards: Array) -> Array:
    """Return each row's column in the assignment whose sum is largest, -1 for a row too many."""
    # scipy takes a fifth of a second to import, and only a coordinator matches.
    from scipy.optimize import linear_sum_assignment

    chosen = np.full(len(rewards), -1, np.int64)
    rows, columns = linear_sum_assignment(rewards, maximize=True)
    chosen[rows] = columns
    return chosen


def _favourites(gains: Array) -> Array:
    """Return the atom by which each unit gains most, -1 where it gains by none."""
    best = gains.argmax(axis=1)
    return np.where(gains[np.arange(len(gains)), best] > 0.0, best, -1)


def _collide(chosen: Array) -> bool:
    known = chosen[chosen >= 0]
    return len(np.unique(known)) < len(known)


def _gaining(gains: Array) -> Array:
    """Return each unit's atom in the best assignment, -1 for a unit that gains by none."""
    gains = np.maximum(gains, 0.0)
    chosen = solved(gains)
    known = np.flatnonzero(chosen >= 0)
    chosen[known[gains[known, chosen[known]] <= 0.0]] = -1
    return chosen


def _priced(gains: Array, most: int, poisson: bool) -> Array:
    """Return each unit's atom, -1 if new, without columns for new atoms; empty if prices tie.

    The best value with n new atoms is concave in n. So the best n is the largest whose last new
    atom is worth its penalty, and some price for each new atom gives exactly n of them.
    """
    count = _worthwhile(gains, most) if poisson else most
    # At the highest price, any atom is a gain
    low, high = 0.0, float(gains.max() - gains.min()) + 1.0
    for _ in range(_HALVINGS):
        price = (low + high) / 2.0
        chosen = _gaining(gains + price)
        fresh = int((chosen < 0).sum())
        if fresh == count:
            return chosen
        # A higher price leaves fewer units new
        low, high = (price, high) if fresh > count else (low, price)
    return _NOTHING


def _worthwhile(gains: Array, most: int) -> int:
    """Return how many new atoms are worth the penalty ``2 log k`` of the k-th."""
    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        fresh = int((_gaining(gains + 2.0 * np.log(middle)) < 0).sum())
        low, high = (middle, high) if fresh >= middle else (low, middle)
    return low


def _with_columns(existing: Array, new: Array, columns: int, poisson: bool) -> Array:
    penalties = 2.0 * np.log(np.arange(1, columns + 1)) if poisson else np.zeros(columns)
    rewards = np.concatenate([existing, new[:, None] - penalties], axis=1)
    chosen = solved(rewards)
    chosen[chosen >= existing.shape[1]] = -1
    return chosen
