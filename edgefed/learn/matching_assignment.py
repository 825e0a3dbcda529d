"""The best assignment of one device's units to atoms and new atoms, by scipy's exact solver."""

from __future__ import annotations

import numpy as np

from edgefed.learn.types import Array


def best_assignment(existing: Array, new: Array, room: int, *, poisson: bool) -> Array:
    """Return each unit's atom, at most one unit in an atom; numbers from ``atoms`` on are new.

    New atoms are numbered in the order of their units.

    Args:
        existing: rewards (units, atoms).
        new: rewards (units,) as a new atom.
        room: how many new atoms there may be; with the atoms at least as many as units.
        poisson: whether the k-th new atom costs ``2 log k``.
    """
    # A unit is new where no atom gains by it. Without penalty and bound that is the answer, and
    # with them no more units are new: so the columns of new atoms can be as few.
    chosen = _gaining(existing, new)
    wanted = int((chosen < 0).sum())
    if wanted and (poisson or wanted > room):
        chosen = _with_columns(existing, new, min(wanted, room), poisson)
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


def _gaining(existing: Array, new: Array) -> Array:
    gains = np.maximum(existing - new[:, None], 0.0)
    chosen = solved(gains)
    known = np.flatnonzero(chosen >= 0)
    chosen[known[gains[known, chosen[known]] <= 0.0]] = -1
    return chosen


def _with_columns(existing: Array, new: Array, columns: int, poisson: bool) -> Array:
    penalties = 2.0 * np.log(np.arange(1, columns + 1)) if poisson else np.zeros(columns)
    rewards = np.concatenate([existing, new[:, None] - penalties], axis=1)
    chosen = solved(rewards)
    chosen[chosen >= existing.shape[1]] = -1
    return chosen
