"""Hold out samples for testing, in proportion to the labels if there are labels."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from edgefed.data.base.types import Array, Indices, take
from edgefed.files.samples import Samples


def hold_out(samples: Samples, share: float, rng: np.random.Generator) -> tuple[Samples, Samples]:
    """Return (train, test): two disjoint parts in the original order.

    Args:
        samples: with labels or numeric targets.
        share: of the samples for testing, in [0, 1); rounded up, but one sample is always left
            for training. A label with a single sample stays in training where possible.
        rng: decides which samples of each label are held out.
    """
    if not share:  # most simulations, of any number of devices: nothing is sorted
        return samples, take(samples, np.zeros(0, np.int64))
    kept, held = held_out_positions(samples.targets, share, rng)
    if not len(held):  # the samples need no second copy
        return samples, take(samples, held)
    return take(samples, kept), take(samples, held)


def held_out_positions(
    labels: Array, share: float, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return the positions for training and those held out, each ascending; see `hold_out`.

    Targets (n, outputs) that are not labels count as one label.
    """
    chosen = np.zeros(len(labels), dtype=bool)
    chosen[_held_out(labels, share, rng.permutation)] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)


def lowest_held_out(labels: Array, share: float, keys: Array) -> Indices:
    """Return the positions held out, as ``hold_out`` does: of each label those of lowest key."""
    return _held_out(labels, share, lambda positions: positions[np.argsort(keys[positions])])


def _held_out(labels: Array, share: float, order: Callable[[Indices], Indices]) -> Indices:
    if labels.ndim > 1:
        labels = np.zeros(len(labels), np.int64)
    present, counts = np.unique(labels, return_counts=True)
    quotas = _quotas(counts, share)
    picks = [
        order(np.flatnonzero(labels == label))[:quota]
        for label, quota in zip(present, quotas, strict=True)
    ]
    return np.concatenate(picks) if picks else np.zeros(0, np.int64)


def _quotas(counts: Indices, share: float) -> Indices:
    """Return how many samples of each label to hold out: largest remainders (Hamilton)."""
    samples = int(counts.sum())
    # Rounded first, so that 0.1 of 30 is 3 and not, by a floating point's last bit, 4.
    wanted = min(math.ceil(round(share * samples, 9)), samples - 1)
    if wanted <= 0:
        return np.zeros_like(counts)
    exact = wanted * counts / samples
    quotas: Indices = np.floor(exact).astype(np.int64)
    would_empty = quotas + 1 >= counts
    by_remainder = np.lexsort((quotas - exact, would_empty))
    quotas[by_remainder[: wanted - int(quotas.sum())]] += 1
    return quotas
