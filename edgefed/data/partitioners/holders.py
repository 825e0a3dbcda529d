"""Assign samples to devices, given a table of the labels of each device."""

from __future__ import annotations

import numpy as np

from edgefed.data.base.types import Indices
from edgefed.data.partitioners.cover import Parts, too_few


def held_labels(labels: Indices, classes_per_device: int) -> Indices:
    """Return the labels that samples bear, ascending.

    Raises:
        DataError: there are fewer than ``classes_per_device``.
    """
    present: Indices = np.unique(labels)
    if classes_per_device > len(present):
        raise too_few(
            f"Each device needs {classes_per_device} labels, but the data has {len(present)}.",
            hint=f"set classes_per_device to at most {len(present)}",
        )
    return present


def share_out(labels: Indices, table: Indices, rng: np.random.Generator) -> Parts:
    """Return each device's samples: those of a label are divided nearly equally among its holders.

    Args:
        labels: (n,) integers.
        table: (devices, c) positions among the present labels, ascending; no position twice in a
            row. A label without a holder is in no part.
        rng: draws which samples a holder gets.

    Raises:
        DataError: a label has fewer samples than holders.
    """
    present, counts = np.unique(labels, return_counts=True)
    _check_holders(table, present, counts)
    parts: list[list[Indices]] = [[] for _ in table]
    for position, label in enumerate(present):
        holders = np.flatnonzero((table == position).any(axis=1))
        if not len(holders):
            continue
        shuffled = rng.permutation(np.flatnonzero(labels == label))
        for holder, piece in zip(holders, np.array_split(shuffled, len(holders)), strict=True):
            parts[holder].append(piece)
    return tuple(rng.permutation(np.concatenate(part)) for part in parts)


def random_table(
    devices: int, classes_per_device: int, classes: int, rng: np.random.Generator
) -> Indices:
    """Return (devices, classes_per_device) positions: each row drawn alone, without repetition."""
    rows = [rng.choice(classes, size=classes_per_device, replace=False) for _ in range(devices)]
    return np.array(rows, np.int64).reshape(devices, classes_per_device)


def _check_holders(table: Indices, present: Indices, counts: Indices) -> None:
    holders = np.bincount(table.ravel(), minlength=len(present))
    short = np.flatnonzero(counts < holders)
    if len(short):
        first = short[0]
        raise too_few(
            f"Label {present[first]} has {counts[first]} samples for {holders[first]} devices.",
            hint="use fewer devices, fewer classes_per_device, or more data",
        )
